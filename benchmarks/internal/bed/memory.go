package bed

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
)

// HeapInUse is what this process's heap takes, in bytes, garbage included. Reading it stops the process for some microseconds.
func HeapInUse() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

// Resident is what this process takes of the machine's memory, in bytes; ok is false where the system does not say (Linux does).
func Resident() (resident uint64, ok bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(status) {
		if value, found := bytes.CutPrefix(line, []byte("VmRSS:")); found {
			kib, err := strconv.ParseUint(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
