//go:build unix

package chaos

import (
	"io"
	"os"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// Options of a run. The zero value of a field means its default.
type Options struct {
	// Seed decides the schedule of faults and what producers do. Runs with one seed and the same
	// other options have the same schedule; how processes interleave under it differs.
	Seed uint64
	// For is how long faults go on. Default 1 minute.
	For time.Duration
	// Drain is how long afterwards the backlog may stand still, of rows and then of what consumers have
	// to handle, before it counts as stuck. Default 1 minute.
	Drain time.Duration
	// Every is the mean time between faults. Default 3 seconds.
	Every time.Duration
	// Producers, Relays and Projectors are processes. Defaults 2, 3 and 2. A projector consumes
	// from all brokers, with the inbox; a negative number means none.
	Producers, Relays, Projectors int
	// Rate is the transactions per second that each producer tries. Default 20.
	Rate int
	// Keys is the number of accounts that they write. Default 40.
	Keys int
	// Lease of the relays. Default 3 seconds.
	Lease time.Duration
	// NotKept has rows removed as they are delivered ("keep: false"). Default: they are kept.
	NotKept bool
	// Slow is the one-way delay between relays and brokers, so that rows stay claimed for long;
	// half of it for every second relay. Default 0.
	Slow time.Duration
	// Database is the kind of database, as drivers of a configuration are called: postgres, the
	// default, mysql, or sqlserver, whose server has to be given.
	Database string
	// Brokers are the external ones: partner, pubsub, rabbitmq, nats, kafka. Default: all, kafka only where
	// the variable of its directory and Java are there.
	Brokers []string
	// Only restricts the faults to some kinds. Default: all that the servers allow.
	Only []Kind
	// TrueClocks keeps the clocks of processes right, which saves building a second program.
	TrueClocks bool
	// Program is a program that runs worker.Main, in place of one that the rig builds: it has true
	// clocks and no defect. Default: cmd/worker is built.
	Program string
	// Broken is the name of a [Defect] to build into the program under test. Default: none.
	Broken string
	// Keep is a directory for ledgers and logs. Default: they are removed.
	Keep string
	// Log gets the progress. Default: standard error.
	Log io.Writer
}

func (o Options) withDefaults() Options {
	fallback(&o.Database, string(outbox.Postgres))
	fallback(&o.For, time.Minute)
	fallback(&o.Drain, time.Minute)
	fallback(&o.Every, 3*time.Second)
	fallback(&o.Producers, 2)
	fallback(&o.Relays, 3)
	fallback(&o.Projectors, 2)
	fallback(&o.Rate, 20)
	fallback(&o.Keys, 40)
	fallback(&o.Lease, 3*time.Second)
	if o.Log == nil {
		o.Log = os.Stderr
	}
	return o
}

func fallback[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
