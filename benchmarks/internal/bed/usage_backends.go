package bed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of /proc/<pid>/stat on Linux.
const tick = 10 * time.Millisecond

// BackendCPU is the processor time that the server's processes have taken so far for the connections to this database that are open
// now; ok is false where the server runs elsewhere, or the system does not say (Linux does).
func (d *Database) BackendCPU(ctx context.Context) (taken time.Duration, ok bool, err error) {
	rows, err := d.Admin.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
	if err != nil {
		return 0, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return 0, false, err
		}
		one, found := processCPU(pid)
		taken, ok = taken+one, ok || found
	}
	return taken, ok, rows.Err()
}

// processCPU of a process of PostgreSQL on this machine.
func processCPU(pid int) (taken time.Duration, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	_, rest, found := bytes.Cut(stat, []byte("(postgres) "))
	fields := bytes.Fields(rest)
	const user, system = 11, 12 // behind the name
	if !found || len(fields) <= system {
		return 0, false
	}
	for _, field := range fields[user : system+1] {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, false
		}
		taken += time.Duration(ticks) * tick
	}
	return taken, true
}
