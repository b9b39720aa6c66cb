package testservers

import "syscall"

// inMemory reports whether dir is a file system in memory with room for the servers.
func inMemory(dir string) bool {
	const tmpfs = 0x01021994 // man 2 statfs
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || int64(fs.Type) != tmpfs { //nolint:unconvert // its size depends on the architecture
		return false
	}
	return int64(fs.Bavail)*int64(fs.Bsize) >= memoryRoom //nolint:gosec,unconvert // a size is positive
}
