package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Exchange implements driver.Delivery. Where the head of the shard is simple, it is one round trip
// with up to three transactions. The first writes what was published, or removes it. The second writes the other
// outcomes under the shard's lock, since the place of a failed head and of its released followers
// must change in one step for the next window. The third claims under the same lock; when another
// process holds it at that moment, the batch is Busy. What was claimed is read last, when the lock
// is free again. Else the third sends the window, and what was decided about it is taken in a
// second round trip.
//
// A part that the server breaks off in favour of another transaction is repeated a few times. What
// was completed before that stands and is not sent again. A claim whose answer was lost leaves
// leases that run out.
func (s *Store) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	exchanged, err := claims.Exchange(ctx, thin{s}, completion, claim)
	if err != nil {
		return exchanged, fmt.Errorf("sqlserver: claim and complete in %s: %w", s.table, explain(err))
	}
	return exchanged, nil
}

// thin is the store as claims use it.
type thin struct{ *Store }

// Exchange implements claims.Store.
func (s thin) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (claims.Answer, error) {
	x := exchange{store: s.Store, completion: completion, claim: claim}
	var locked error // a row of the completion is
	err := retry(ctx, func() error {
		err := x.run(ctx)
		if p := x.remaining(); (p.published || p.other) && numbered(err, lockTimeout) {
			locked = fmt.Errorf("%w: %w", claims.ErrLocked, err)
			return nil
		}
		return err
	})
	x.answer.Completed = x.completed()
	return x.answer, errors.Join(err, locked)
}

// exchange is one call in progress.
type exchange struct {
	store      *Store
	completion *driver.Completion
	claim      *driver.Claim
	// published and other are how many rows were marked; nil until the server has said that they
	// are.
	published, other *int
	claimed          bool // the server has said what it claimed
	answer           claims.Answer
}

// parts says which parts a batch has; each combination is a text of its own, which the server plans
// once. Where published rows are not kept, deleted says so.
type parts struct{ published, deleted, other, claim bool }

// exchangeTexts builds the text of every combination.
func exchangeTexts(table string) map[parts]string {
	texts := map[parts]string{}
	for _, first := range []parts{{}, {published: true}, {published: true, deleted: true}} {
		for _, other := range []bool{false, true} {
			for _, claim := range []bool{false, true} {
				p := parts{first.published, first.deleted, other, claim}
				texts[p] = batchText(table, p.files()...)
			}
		}
	}
	return texts
}

func (p parts) files() (names []string) {
	switch {
	case p.deleted:
		names = append(names, "delete_published")
	case p.published:
		names = append(names, "mark_published")
	}
	if p.other {
		names = append(names, "mark_other")
	}
	if p.claim {
		names = append(names, "claim", "fetch")
	}
	return names
}

// run does what is still to be done.
func (x *exchange) run(ctx context.Context) error {
	p := x.remaining()
	if p == (parts{}) {
		return nil
	}
	args, err := x.args(p)
	if err != nil {
		return err
	}
	a := &x.answer
	if err := x.store.query(ctx, x.store.sql.exchange[p], args, resultSets{
		"fanout_published": func(rows *sql.Rows) error { return scanCount(rows, &x.published) },
		"fanout_other":     func(rows *sql.Rows) error { return scanCount(rows, &x.other) },
		"fanout_busy":      x.readHead,
		"fanout_row":       func(rows *sql.Rows) error { return readRow(rows, a.Window) },
		"fanout_block":     func(rows *sql.Rows) error { return readBlock(rows, a) },
		"fanout_follower":  func(rows *sql.Rows) error { return readFollower(rows, a.Blocks) },
		"fanout_id":        func(rows *sql.Rows) error { return readMessage(rows, &a.Batch, x.claim.Limit) },
	}); err != nil {
		x.claimed = false // or not read to the end
		return err
	}
	if x.remaining() != (parts{}) {
		return errIncomplete
	}
	return nil
}

// remaining says what the server has not confirmed yet.
func (x *exchange) remaining() (p parts) {
	if x.completion != nil {
		p.published = len(x.completion.Published) > 0 && x.published == nil
		p.deleted = p.published && x.completion.DeletePublished
		p.other = len(x.completion.Other) > 0 && x.other == nil
	}
	p.claim = x.claim != nil && !x.claimed
	return p
}

// completed is nil until the completion stands as a whole.
func (x *exchange) completed() *driver.Completed {
	if x.completion == nil {
		return nil
	}
	if p := x.remaining(); p.published || p.other {
		return nil
	}
	lost := len(x.completion.Published) + len(x.completion.Other)
	for _, marked := range []*int{x.published, x.other} {
		if marked != nil {
			lost -= *marked
		}
	}
	return &driver.Completed{Lost: lost}
}

// args are the parameters of a text, and no others: a parameter that a text does not use would make
// it another plan.
func (x *exchange) args(p parts) ([]any, error) {
	var args []any
	if p.published || p.other {
		args = append(args, sql.Named("completed_token", x.completion.Lease.Token.String()))
	}
	if p.published {
		list, err := publishedList(x.completion.Published, !p.deleted)
		if err != nil {
			return nil, err
		}
		args = append(args, sql.Named("published", list))
	}
	if p.other {
		list, err := otherList(x.completion.Other)
		if err != nil {
			return nil, err
		}
		lease := &x.completion.Lease
		args = append(args, sql.Named("other", list), sql.Named("block_abandoned", x.completion.BlockAbandoned),
			sql.Named("completed_broker", lease.Broker), sql.Named("completed_shard", int32(lease.Shard))) //nolint:gosec // a few
	}
	if !p.claim {
		return args, nil
	}
	c := x.claim
	x.answer = claims.Answer{}
	taking, err := takeArgs(c, &x.answer.Batch)
	if err != nil {
		return nil, err
	}
	window := c.Window
	if c.Unordered { // nothing waits for anything
		window = min(window, c.Limit)
	}
	return append(append(args, taking...),
		sql.Named("window", int64(window)), sql.Named("limit", int64(c.Limit)), sql.Named("bytes", driver.Bound(c.Bytes)), sql.Named("wake", c.Wake),
		sql.Named("max_blocks", int64(driver.MaxBlocks)), sql.Named("max_done", int64(driver.MaxDone)), sql.Named("max_followers", int64(driver.MaxFollowers)),
		sql.Named("admits", int64(c.Admits())), sql.Named("per_key", int64(c.PerKey)),
	), nil
}

// takeArgs are the parameters of what takes rows, for a batch under a token of its own: what
// another try claimed is not ours.
func takeArgs(c *driver.Claim, batch *driver.Batch) ([]any, error) {
	token, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make a claim token: %w", err)
	}
	batch.Lease = driver.Lease{Broker: c.Broker, Shard: c.Shard, Token: token, Duration: c.Lease}
	return append(append(shardArgs(c.Broker, c.Shard),
		sql.Named("worker", mssql.NVarCharMax(storable(c.Worker))), sql.Named("token", token.String()),
		sql.Named("shared", c.Shared), sql.Named("unordered", c.Unordered), sql.Named("most", driver.Bound(c.MaxPayload)),
	), durationArgs("lease", c.Lease)...), nil
}

func shardArgs(broker string, shard int) []any {
	return []any{sql.Named("broker", broker), sql.Named("shard", int32(shard))} //nolint:gosec // a few
}

// scanCount reads how many rows were marked, once that stands.
func scanCount(rows *sql.Rows, into **int) error {
	var n int
	if err := rows.Scan(&n); err != nil {
		return err
	}
	*into = &n
	return nil
}

// readHead reads what the claim saw.
func (x *exchange) readHead(rows *sql.Rows) error {
	x.claimed = true
	var (
		a      = &x.answer
		simple bool
		w      driver.Window
	)
	if err := rows.Scan(&a.Batch.Busy, &simple, &a.Batch.Seen, &a.Batch.Waiting, &w.Version, &w.Blocked); err != nil {
		return err
	}
	a.Batch.Blocked, a.LiftVersion = w.Blocked, w.Version
	if !simple {
		a.Window = &w
	}
	return nil
}
