//go:build unix

package testservers

import (
	"os/exec"
	"syscall"
)

func (a *account) runAs(cmd *exec.Cmd) {
	if a != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
	}
}
