//go:build unix && !linux

package chaos

// maxrssUnit is what the kernel counts a process's memory in.
const maxrssUnit = 1

// peakMemory is not known of a running process.
func peakMemory(int) int64 { return 0 }
