package chaos

import (
	"fmt"
	"os"
	"strings"
)

// maxrssUnit is what the kernel counts a process's memory in.
const maxrssUnit = 1 << 10

// peakMemory returns the peak memory of a running process in bytes; 0 where it is not known. What
// the kernel reports of an exited process includes the memory of its parent at the start.
func peakMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int64
	_, _ = fmt.Sscan(rest, &kilobytes) // 0 then
	return kilobytes << 10
}
