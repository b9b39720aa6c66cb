package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// profile begins the profiles that were asked for. What it returns ends and writes them.
func (s *settings) profile() (stop func() error, err error) {
	var files [2]*os.File
	for i, path := range []string{s.cpu, s.mem} {
		if path == "" {
			continue
		}
		if files[i], err = os.Create(path); err != nil { //nolint:gosec // the file that the caller asks for
			return nil, err
		}
	}
	if files[0] != nil {
		if err := pprof.StartCPUProfile(files[0]); err != nil {
			return nil, err
		}
	}
	return func() (err error) {
		if files[0] != nil {
			pprof.StopCPUProfile()
			err = files[0].Close()
		}
		if files[1] != nil {
			err = errors.Join(err, pprof.Lookup("allocs").WriteTo(files[1], 0), files[1].Close())
		}
		return err
	}, nil
}
