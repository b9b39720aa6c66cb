package child

import (
	"os/exec"
	"syscall"
)

func dieWithParent(cmd *exec.Cmd) {
	ownGroup(cmd)
	// SIGQUIT ends PostgreSQL at once together with its backends, and everything else as well.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
}
