package testservers

import "syscall"

// hasMemory reports whether dir has room for the servers' files. A container's /dev/shm often has not.
func hasMemory(dir string) bool {
	const room = 4 << 30 // bytes: all servers of a run take less than half of it
	var fs syscall.Statfs_t
	err := syscall.Statfs(dir, &fs)
	return err == nil && int64(fs.Bavail)*int64(fs.Bsize) >= room //nolint:gosec,unconvert // the types depend on the architecture
}
