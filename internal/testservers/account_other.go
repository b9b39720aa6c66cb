//go:build !unix

package testservers

import "os/exec"

// runAs does nothing: only Unix has a root for [unprivileged] to avoid.
func (a *account) runAs(*exec.Cmd) {}
