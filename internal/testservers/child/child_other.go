//go:build !unix

package child

import (
	"os"
	"os/exec"
)

// Without process groups and signals a child is started plainly and ended hard. It keeps the module
// building; the servers themselves are run on Unix.

func dieWithParent(*exec.Cmd) {}

func signalGroup(process *os.Process, _ os.Signal) error { return process.Kill() }

func exitCode(state *os.ProcessState) int { return state.ExitCode() }
