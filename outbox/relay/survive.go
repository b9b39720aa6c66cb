package relay

import (
	"context"
	"fmt"
	"runtime/debug"
)

// survive runs f, and is false where f panicked. What a row, an answer of the database or a defect
// of ours brings about ends what was in progress, and neither the process nor the work on other
// shards. It is logged at most once a minute: the same row brings it about again with each try.
//
// Rows that were claimed are left to their leases, as if the process had crashed. So they are
// counted as crashes, and claimed fewer at a time, until the row that does it is alone and runs out
// of attempts.
func (p *Processor) survive(ctx context.Context, doing string, f func()) (survived bool) {
	defer func() {
		if r := recover(); r != nil && p.panicked.now() {
			p.log.ErrorContext(ctx, "panic survived", "doing", doing, "error", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}
