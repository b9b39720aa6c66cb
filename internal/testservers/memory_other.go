//go:build !linux

package testservers

func hasMemory(string) bool { return false }
