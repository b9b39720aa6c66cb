package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// other is how an outcome that is no success travels into a statement.
type other struct {
	ID     int64         `json:"i"`
	Status outbox.Status `json:"s"`
	Spent  int           `json:"a"`
	Delay  int64         `json:"d"`
	Error  *string       `json:"e,omitempty"`
}

// complete writes outcomes, all of them or none: what was published without a lock where that is all,
// else under the shard's lock.
func (s *Store) complete(ctx context.Context, completion *driver.Completion) (*driver.Completed, error) {
	given := args{"token": digits(completion.Lease.Token), "broker": completion.Lease.Broker, "shard": completion.Lease.Shard}
	marked, counted := 0, noVersion
	err := completing(ctx, func() (err error) {
		if len(completion.Other) == 0 && len(completion.Published) <= listed {
			marked, err = s.published(ctx, s.db, completion)
			return err
		}
		return s.transaction(ctx, func(tx *sql.Tx) error {
			marked = 0
			if len(completion.Other) > 0 {
				given["rows"] = otherList(completion.Other)
				if marked, counted, err = s.markOther(ctx, tx, completion, given); err != nil {
					return err
				}
			}
			published, err := s.published(ctx, tx, completion)
			marked += published
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if counted != noVersion {
		s.water.changed(completion.Lease.Broker, completion.Lease.Shard, counted, nil)
	}
	return &driver.Completed{Lost: len(completion.Published) + len(completion.Other) - marked}, nil
}

// published marks what was published, or removes it, and returns how many rows were still ours.
func (s *Store) published(ctx context.Context, on conn, completion *driver.Completion) (int, error) {
	if len(completion.Published) == 0 {
		return 0, nil
	}
	if !completion.DeletePublished {
		return s.markPublished(ctx, on, completion)
	}
	ids := make([]int64, len(completion.Published))
	for i := range ids {
		ids[i] = completion.Published[i].ID
	}
	slices.Sort(ids)
	return s.exec(ctx, on, "delete_published", args{"token": digits(completion.Lease.Token), "ids": jsonList(ids)})
}

// markPublished marks what was published, by a statement for each list that a text can hold.
func (s *Store) markPublished(ctx context.Context, on conn, completion *driver.Completion) (marked int, err error) {
	delivered := slices.SortedFunc(slices.Values(completion.Published), func(a, b driver.Delivered) int { return cmp.Compare(a.ID, b.ID) })
	for some := range slices.Chunk(delivered, listed) {
		mark := s.statements["mark_published"]
		mark.text = withDelivered(mark.text, some)
		n, err := execText(ctx, on, mark, args{"token": digits(completion.Lease.Token)})
		if err != nil {
			return marked, err
		}
		marked += n
	}
	return marked, nil
}

// withDelivered fills what was delivered into a text. The broker's ids are written in hex, in which no
// text can end what it stands in.
func withDelivered(text string, delivered []driver.Delivered) string {
	const usual = 64 // bytes of an id with all around it
	ids, texts := make([]int64, len(delivered)), make([]byte, 0, usual*len(delivered))
	for i := range delivered {
		ids[i] = delivered[i].ID
		if i > 0 {
			texts = append(texts, ',')
		}
		if id := delivered[i].BrokerMessageID; id == "" {
			texts = append(texts, "NULL"...)
		} else {
			texts = append(hex.AppendEncode(append(texts, "_utf8mb4 x'"...), []byte(storable(id))), '\'')
		}
	}
	text = strings.Replace(text, "{{texts}}", string(texts), 1)
	return withList(withList(text, "list", ids), "list", ids)
}

// markOther writes the outcomes that are no success, under the shard's lock. The first abandoned row
// of a key becomes its block, whatever was before.
// counted is the version of the shard before, where a change of it was counted by which no row has come
// back.
func (s *Store) markOther(ctx context.Context, tx *sql.Tx, completion *driver.Completion, given args) (marked int, counted int64, err error) {
	version, err := s.list(ctx, tx, "lock", given)
	if err != nil {
		return 0, noVersion, held(err)
	}
	var blocking []int64
	for i := range completion.Other {
		if o := &completion.Other[i]; completion.Blocks(o) {
			blocking = append(blocking, o.ID)
		}
	}
	if len(blocking) > 0 {
		given["ids"] = jsonList(blocking)
		if blocking, err = s.list(ctx, tx, "first_abandoned", given); err != nil {
			return 0, noVersion, err
		}
	}
	if marked, err = s.exec(ctx, tx, "mark_other", given); err != nil || len(blocking) == 0 {
		return marked, noVersion, err
	}
	given["ids"] = jsonList(blocking)
	if err := s.inTurn(ctx, tx, given, "turn", "replace_blocks", "block_abandoned"); err != nil {
		return marked, noVersion, err
	}
	found, err := s.undeferBefore(ctx, tx, given)
	if counted = noVersion; !found && len(version) > 0 {
		counted = version[0]
	}
	return marked, counted, err
}

// noVersion is none of a shard.
const noVersion int64 = -1

// undeferBefore brings back what is deferred before blocks. Mostly that is nothing, and some is false.
func (s *Store) undeferBefore(ctx context.Context, tx *sql.Tx, given args) (some bool, err error) {
	var found []args
	err = s.query(ctx, tx, "held_before", given, func(scan scanner) error {
		var (
			block int64
			key   string
		)
		err := scan(&block, &key)
		found = append(found, args{"broker": given["broker"], "shard": given["shard"], "block": block, "key": key})
		return err
	})
	for i := range found {
		if err == nil {
			_, err = s.exec(ctx, tx, "undefer_before", found[i])
		}
	}
	return len(found) > 0, err
}

// inTurn runs statements one after the other.
func (s *Store) inTurn(ctx context.Context, tx *sql.Tx, given args, names ...string) error {
	for _, name := range names {
		if _, err := s.exec(ctx, tx, name, given); err != nil {
			return err
		}
	}
	return nil
}

// All lock rows in the order of their ids, so that few of them deadlock.

func otherList(outcomes []driver.Outcome) string {
	items := make([]other, len(outcomes))
	for i, o := range outcomes {
		items[i] = other{ID: o.ID, Status: o.Status, Delay: o.Delay.Microseconds(), Error: optional(o.LastError)}
		if o.Spent {
			items[i].Spent = 1
		}
	}
	slices.SortFunc(items, func(a, b other) int { return cmp.Compare(a.ID, b.ID) })
	return jsonList(items)
}

// optional is a text, or nil for none.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	text = storable(text)
	return &text
}

// digits are how a token travels into a statement. Bytes that are no UTF-8 must not be in a text: MySQL's lists of
// transactions and sessions show the texts of statements, and fail for everybody while one has such bytes.
func digits(token uuid.UUID) string { return hex.EncodeToString(token[:]) }

// storable replaces what a text column refuses. Such a text comes from a broker; refusing it would
// make the outcome impossible to write, and the message would be sent forever.
func storable(text string) string { return sqladmin.Text(text).Storable() }
