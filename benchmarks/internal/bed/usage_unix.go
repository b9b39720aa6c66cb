//go:build unix

package bed

import (
	"syscall"
	"time"
)

// CPU is the processor time that this process has taken so far, in its own code and in the system's; ok is false where the system
// does not say.
func CPU() (taken time.Duration, ok bool) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}
