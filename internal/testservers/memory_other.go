//go:build !linux

package testservers

func inMemory(string) bool { return false }
