package sqlserver

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/sqlscan"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Exchange implements driver.Delivery: one round trip, up to three transactions. The first writes what was published. The
// second writes the other outcomes under the shard's lock, since the place of a failed head and of its released followers
// must change in one step for the next claim. The third makes the claim under the same lock; when somebody else holds it
// at that moment, the batch is Busy. What was claimed is read last, when the lock is free again.
//
// A part that the server breaks off in favour of somebody else is repeated a few times. What was completed before that
// stands and is not sent again. A claim whose answer was lost leaves leases that run out.
func (s *Store) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	x := exchange{store: s, completion: completion, claim: claim}
	err := retry(func() error { return x.run(ctx) })
	result := driver.Exchanged{Completed: x.completed()}
	if err != nil {
		return result, fmt.Errorf("sqlserver: claim and complete in %s: %w", s.table, explain(err))
	}
	result.Batch = x.batch
	return result, nil
}

// exchange is one call under way.
type exchange struct {
	store      *Store
	completion *driver.Completion
	claim      *driver.Claim
	// published and other are how many rows were marked; nil until the server has said that they are.
	published, other *int
	claimed          bool // the server has said what it claimed
	batch            driver.Batch
}

// parts says which parts a batch has; each combination is a text of its own, which the server plans once.
type parts struct {
	published, other bool
	claim            claimKind
	wake             bool // the claim first brings back deferred rows
}

type claimKind int

const (
	noClaim claimKind = iota
	orderedClaim
	unorderedClaim
)

// exchangeTexts builds the text of every combination.
func exchangeTexts(table string) map[parts]string {
	texts := map[parts]string{}
	for _, published := range []bool{false, true} {
		for _, other := range []bool{false, true} {
			texts[parts{published: published, other: other}] = parts{published: published, other: other}.text(table)
			for _, claim := range []claimKind{orderedClaim, unorderedClaim} {
				for _, wake := range []bool{false, true} {
					p := parts{published, other, claim, wake}
					texts[p] = p.text(table)
				}
			}
		}
	}
	return texts
}

func (p parts) text(table string) string {
	text := batchText(table, p.files()...)
	var wake string
	if p.wake {
		wake = embedded("wake") + embedded("advance")
		if p.claim == unorderedClaim {
			wake = strings.ReplaceAll(embedded("try_wake"), wakeHere, wake)
		}
	}
	text = strings.ReplaceAll(text, wakeHere, driver.RenderSQL(wake, table))
	return strings.ReplaceAll(text, bytesHere, driver.RenderSQL(embedded("cut_bytes"), table))
}

// wakeHere stands in the texts where deferred rows are brought back.
const wakeHere = "{{wake}}\n"

// bytesHere stands in the texts where a claim is kept within its bytes.
const bytesHere = "{{bytes}}\n"

func (p parts) files() (names []string) {
	if p.published {
		names = append(names, "mark_published")
	}
	if p.other {
		names = append(names, "mark_other")
	}
	switch p.claim {
	case orderedClaim:
		names = append(names, "claim_ordered", "fetch")
	case unorderedClaim:
		names = append(names, "claim_unordered", "fetch")
	case noClaim:
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
	if err := x.store.query(ctx, x.store.sql.exchange[p], args, resultSets{
		"fanout_published": func(rows *sql.Rows) error { return scanCount(rows, &x.published) },
		"fanout_other":     func(rows *sql.Rows) error { return scanCount(rows, &x.other) },
		"fanout_busy": func(rows *sql.Rows) error {
			x.claimed = true
			b := &x.batch
			return rows.Scan(&b.Busy, &b.Seen, &b.Cut, &b.Waiting, &b.Blocked, &b.AheadWaits)
		},
		"fanout_id": x.readMessage,
	}); err != nil {
		x.claimed = false // or not read to the end
		return err
	}
	if x.remaining() != (parts{}) {
		return errIncomplete
	}
	if n := len(x.batch.Messages); n > 0 {
		x.batch.Lease.FirstID, x.batch.Lease.LastID = x.batch.Messages[0].ID, x.batch.Messages[n-1].ID
	}
	return nil
}

// remaining says what the server has not confirmed yet.
func (x *exchange) remaining() (p parts) {
	if x.completion != nil {
		p.published = len(x.completion.Published) > 0 && x.published == nil
		p.other = len(x.completion.Other) > 0 && x.other == nil
	}
	switch {
	case x.claim == nil || x.claimed:
	case x.claim.Unordered:
		p.claim = unorderedClaim
	default:
		p.claim = orderedClaim
	}
	p.wake = p.claim != noClaim && x.claim.Wake
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

// args are the parameters of a text, and no others: a parameter that a text does not use would make it another plan.
func (x *exchange) args(p parts) ([]any, error) {
	var args []any
	if p.published || p.other {
		args = append(args, sql.Named("completed_token", x.completion.Lease.Token.String()))
	}
	if p.published {
		list, err := publishedList(x.completion.Published)
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
		args = append(args, sql.Named("other", list), sql.Named("completed_lock", x.store.shardLock(lease.Broker, lease.Shard)),
			sql.Named("block_abandoned", x.completion.BlockAbandoned))
	}
	if p.claim == noClaim {
		return args, nil
	}
	c := x.claim
	token, err := uuid.NewRandom() // a fresh one for each try: what the last one claimed is not ours
	if err != nil {
		return nil, fmt.Errorf("make a claim token: %w", err)
	}
	x.batch = driver.Batch{Lease: driver.Lease{Broker: c.Broker, Shard: c.Shard, Token: token, Duration: c.Lease}}
	if p.claim == orderedClaim || p.wake {
		args = append(args, sql.Named("claim_lock", x.store.shardLock(c.Broker, c.Shard)))
	}
	return append(append(args,
		sql.Named("broker", c.Broker), sql.Named("shard", int32(c.Shard)), //nolint:gosec // a few
		sql.Named("window", int64(c.Window)), sql.Named("limit", int64(c.Limit)), sql.Named("bytes", bytesOf(c)),
		sql.Named("worker", mssql.NVarCharMax(storable(c.Worker))), sql.Named("token", token.String()), sql.Named("shared", c.Shared),
	), durationArgs("lease", c.Lease)...), nil
}

// bytesOf is how many bytes of payload a claim may take.
func bytesOf(c *driver.Claim) int64 {
	if c.Bytes == 0 {
		return math.MaxInt64
	}
	return int64(c.Bytes)
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

// readMessage reads one row of fetch.sql.
func (x *exchange) readMessage(rows *sql.Rows) error {
	if x.batch.Messages == nil {
		x.batch.Messages = make([]driver.Message, 0, min(x.batch.Seen, x.claim.Limit))
	}
	x.batch.Messages = append(x.batch.Messages, driver.Message{})
	m := &x.batch.Messages[len(x.batch.Messages)-1]
	return rows.Scan(&m.ID, &m.MessageID, &m.Stream, &m.Type, &m.OrderingKey, (*sqlscan.Int)(&m.Priority), &m.ContentType, &m.Headers,
		&m.CorrelationID, (*sqlscan.Int)(&m.Attempts), (*sqlscan.Int)(&m.Crashes), &m.CreatedAt, &m.Expired, &m.Payload)
}
