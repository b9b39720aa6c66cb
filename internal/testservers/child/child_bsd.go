//go:build unix && !linux

package child

import "os/exec"

// dieWithParent can do no more than give the child its group: only Linux has a signal for the
// parent's death.
func dieWithParent(cmd *exec.Cmd) { ownGroup(cmd) }
