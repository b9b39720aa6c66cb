//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes cmd the leader of a new process group.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func signalGroup(process *os.Process, signal os.Signal) error {
	number, ok := signal.(syscall.Signal)
	if !ok {
		return errors.ErrUnsupported
	}
	if err := syscall.Kill(-process.Pid, number); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
