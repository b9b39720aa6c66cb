package sqladmin

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A fact is what was found about one row.
type fact struct {
	core.Facts

	own, block admin.Deferral // why a deferred row waits, by its own entry and by that of its key
}

// states fills in which states open rows are in, and why deferred ones wait. It reads a few entries of
// indexes for each row, and the first 1,000 rows of each of their shards.
func (a *Admin) states(ctx context.Context, conn Conn, records []admin.Record) error {
	rest := make([]*admin.Record, 0, len(records))
	for i := range records {
		if !records[i].Status.Terminal() {
			rest = append(rest, &records[i])
		}
	}
	for len(rest) > 0 {
		open, repeated := map[int64]*admin.Record{}, rest[:0:0]
		for _, r := range rest {
			if open[r.ID] != nil {
				repeated = append(repeated, r) // an identity that began anew
				continue
			}
			open[r.ID] = r
		}
		if err := a.statesOf(ctx, conn, open); err != nil {
			return err
		}
		rest = repeated
	}
	return nil
}

// statesOf is for rows by their ids.
func (a *Admin) statesOf(ctx context.Context, conn Conn, open map[int64]*admin.Record) error {
	facts, err := a.facts(ctx, conn, open)
	if err != nil {
		return err
	}
	if err := a.heads(ctx, conn, facts, open); err != nil {
		return err
	}
	for id, f := range facts {
		r := open[id]
		f.Status, f.Deferred, f.Unconfigured = r.Status, r.Deferred, a.stranger(r.Broker)
		if !r.AvailableAt.IsZero() { // the next lift admits it, deferred or not, once its time has come
			f.Deferred, f.Entry = false, core.NoEntry
		}
		r.State = core.State(&f.Facts)
		r.Deferral = f.deferral(r)
	}
	return nil
}

// deferral is for what a row waits among the key blocks: one that is deferred and has a key waits for
// all that the key waits for, and another one for what its state says.
func (f *fact) deferral(r *admin.Record) *admin.Deferral {
	switch {
	case f.Block != core.NoEntry && (r.Deferred || r.State == outbox.StateBlocked || r.State == outbox.StateBehind && f.BehindBlock()):
		return &f.block
	case r.Deferred && f.Entry != core.NoEntry:
		return &f.own
	}
	return nil
}

// facts are those of rows, by their ids, but for what their shards' heads tell. A row that the database
// passes over, since another transaction is writing it, has none.
func (a *Admin) facts(ctx context.Context, conn Conn, open map[int64]*admin.Record) (facts map[int64]*fact, err error) {
	var (
		ids                     = slices.Sorted(maps.Keys(open))
		shards                  = make([]int64, len(ids))
		brokers, messages, keys = make([]string, len(ids)), make([]string, len(ids)), make([]string, len(ids))
	)
	for i, id := range ids {
		r := open[id]
		shards[i], brokers[i], messages[i], keys[i] = int64(r.Shard), r.Broker, r.MessageID, r.OrderingKey
	}
	facts = make(map[int64]*fact, len(ids))
	given := args{"ids": List{ids}, "brokers": List{brokers}, "message_ids": List{messages}, "keys": List{keys}, "shards": List{shards}}
	err = a.query(ctx, conn, "states", given, func(scan scanner) error {
		id, f, err := scanFact(scan)
		if r := open[id]; err == nil && r != nil && facts[id] == nil {
			f.own.MessageID = r.MessageID
			facts[id] = f
		}
		return err
	})
	return facts, err
}

func scanFact(scan scanner) (id int64, f *fact, err error) {
	var (
		ownReason, reason, messageID *string
		blockID                      *int64
		ownUntil, until              moment
		ownSince, since              moment
	)
	f = &fact{}
	err = scan(&id, &f.Time, &f.Scheduled, &f.Paused, &f.Entry, &ownReason, &ownUntil, &ownSince,
		&f.Block, &reason, &blockID, &messageID, &until, &since, &f.BlockDone, &f.EarlierDeferred)
	f.own = admin.Deferral{Reason: valueOf(ownReason), Since: ownSince.Time, Until: ownUntil.Time}
	f.block = admin.Deferral{Reason: valueOf(reason), MessageID: valueOf(messageID), Since: since.Time, Until: until.Time}
	f.BlockLater = blockID != nil && *blockID > id
	if f.Block == core.Halted && f.block.Reason != reasonOperator {
		f.Block = core.Resting // its row is stranded, and no operator's decision about the key is asked for
	}
	return id, f, err
}

// reasonOperator is that of a key block that waits for an operator.
const reasonOperator = "operator"

// heads fills in what stands before rows, or is claimed, of their keys in their shards.
func (a *Admin) heads(ctx context.Context, conn Conn, facts map[int64]*fact, open map[int64]*admin.Record) error {
	type place struct {
		broker string
		shard  int
	}
	var places []place
	rows := map[place]map[string][]int64{} // ids by their keys
	for _, id := range slices.Sorted(maps.Keys(facts)) {
		r := open[id]
		if r.OrderingKey == "" {
			continue
		}
		at := place{r.Broker, r.Shard}
		if rows[at] == nil {
			places, rows[at] = append(places, at), map[string][]int64{}
		}
		rows[at][r.OrderingKey] = append(rows[at][r.OrderingKey], id)
	}
	for _, at := range places {
		byKey := rows[at]
		given := args{"broker": at.broker, "shard": int64(at.shard), "keys": List{slices.Sorted(maps.Keys(byKey))}}
		err := a.query(ctx, conn, "key_heads", given, func(scan scanner) error {
			var (
				key     string
				other   = int64(math.MaxInt64)
				claimed bool
			)
			err := scan(&key, &other, &claimed)
			for _, id := range byKey[key] {
				if f := facts[id]; other != id {
					f.Earlier, f.Claimed = f.Earlier || other < id, f.Claimed || claimed
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
