//go:build unix

package chaos

import "syscall"

const (
	sigkill = syscall.SIGKILL
	sigterm = syscall.SIGTERM
)
