package bed

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit in which Linux tells processor time, on all machines.
const tick = 10 * time.Millisecond

// ServerCPU is the processor time that all processes of the server have taken so far, whoever they work for; ok is false where
// they run on another machine, or the system does not say (Linux does).
func (d *Database) ServerCPU(ctx context.Context) (taken time.Duration, ok bool, err error) {
	var (
		pid  int
		here bool
	)
	err = d.Admin.QueryRow(ctx, "SELECT pg_backend_pid(), coalesce(inet_server_addr() = inet_client_addr(), true)").Scan(&pid, &here)
	if err != nil || !here {
		return 0, false, err
	}
	backend, ok := readProcess(strconv.Itoa(pid))
	if !ok || backend.name != "postgres" {
		return 0, false, nil
	}
	postmaster, ok := readProcess(strconv.Itoa(backend.parent))
	if !ok || postmaster.name != "postgres" {
		return 0, false, nil
	}
	for ok {
		before := postmaster
		total := before.own + before.children // of those that have ended
		directories, _ := filepath.Glob("/proc/[0-9]*")
		for _, directory := range directories {
			if p, ok := readProcess(filepath.Base(directory)); ok && p.parent == backend.parent {
				total += p.own
			}
		}
		// One that has ended in between is in none of the two.
		if postmaster, ok = readProcess(strconv.Itoa(backend.parent)); ok && postmaster.children == before.children {
			return total, true, nil
		}
	}
	return 0, false, nil
}

// process is what the system says about one.
type process struct {
	name          string
	parent        int
	own, children time.Duration
}

func readProcess(pid string) (p process, ok bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat")) //nolint:gosec // a number
	if err != nil {
		return p, false
	}
	// pid (name) state parent ...: the name may hold anything.
	from, to := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if from < 0 || to < from {
		return p, false
	}
	const parent, own, children, fields = 1, 11, 13, 15
	values := bytes.Fields(stat[to+1:])
	if len(values) < fields {
		return p, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(values[i]), 10, 64)
		return n
	}
	return process{
		name: string(stat[from+1 : to]), parent: int(number(parent)),
		own: time.Duration(number(own)+number(own+1)) * tick, children: time.Duration(number(children)+number(children+1)) * tick,
	}, true
}
