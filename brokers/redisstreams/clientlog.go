package redisstreams

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/gorm-fanout/fanout/internal/discreet"
)

// ClientLog passes on what the Redis client logs, at the level debug: each failed dial, which a relay sums
// up itself. It leaves out what servers repeat of commands that they do not know, which may be a password.
// The client has one log for the whole process, and would print to standard error:
//
//	redis.SetLogger(redisstreams.ClientLog(slog.Default))
//
// The function is called for each line; where it returns nil, the line is dropped. It is called by several
// goroutines.
type ClientLog func() *slog.Logger

// Printf is called by the client.
func (c ClientLog) Printf(ctx context.Context, format string, args ...any) {
	if log := c(); log != nil {
		log.DebugContext(ctx, "redis client", "says", discreet.Text(fmt.Sprintf(format, args...)))
	}
}
