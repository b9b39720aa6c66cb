package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// List implements outbox.Browser. Rows are read one after the other until the page is full; those that are in somebody's hands are looked
// for at the heads of the shards, where claims find them.
func (s *Store) List(ctx context.Context, request outbox.ListRequest) (outbox.List, error) {
	list, err := s.list(ctx, request)
	if err != nil {
		return outbox.List{}, fmt.Errorf("sqlite: list rows in %s: %w", s.table, err)
	}
	return list, nil
}

func (s *Store) list(ctx context.Context, request outbox.ListRequest) (list outbox.List, err error) {
	if err := checkList(request); err != nil {
		return list, err
	}
	var (
		last outbox.Position // of the rows that were looked at
		more bool
	)
	err = s.ask(ctx, func(rows *sql.Rows) error {
		if more = len(list.Records) == request.Limit || list.Scanned == request.Scan; more {
			return errEnough
		}
		var (
			r       record
			matched bool
		)
		if err := rows.Scan(append([]any{&matched}, r.fields()...)...); err != nil {
			return err
		}
		list.Scanned++
		last = outbox.Position{ID: r.ID, Time: moment(r.finished.Int64)}
		if matched {
			list.Records = append(list.Records, r.read())
		}
		return nil
	}, s.listSQL(request.Status, request.Key), listArgs(request)...)
	if more {
		list.Next = last
	}
	if err == nil {
		err = s.deferrals(ctx, list.Records)
	}
	return list, err
}

// checkList refuses what cannot be meant.
func checkList(r outbox.ListRequest) error {
	filter := outbox.Filter{Broker: r.Broker, Statuses: []outbox.Status{r.Status}, Type: r.Type, Key: r.Key, ErrorClass: r.ErrorClass, Since: r.Since, Until: r.Until}
	_, err := filter.For("list", r.Limit, outbox.Statuses()...)
	if r.Broker == "" {
		err = errors.Join(err, errors.New("list: name the broker"))
	}
	if r.Scan < r.Limit || r.Scan > mostRows {
		err = errors.Join(err, fmt.Errorf("list: %d rows are to be looked at for a page of %d: it must be at least as many, and at most %d", r.Scan, r.Limit, mostRows))
	}
	return err
}

func listArgs(r outbox.ListRequest) []any {
	exact, prefix := outbox.Filter{Type: r.Type}.TypePattern()
	id, at := r.After.ID, r.After.Time.UnixMicro()
	if r.After == (outbox.Position{}) {
		id, at = math.MaxInt64, math.MaxInt64
	}
	bound := func(at time.Time) any {
		if at.IsZero() {
			return nil
		}
		return at.UnixMicro()
	}
	args := []any{
		sql.Named("broker", r.Broker), sql.Named("status", string(r.Status)), sql.Named("type", exact), sql.Named("prefix", prefix),
		sql.Named("key", r.Key), sql.Named("class", r.ErrorClass), sql.Named("since", bound(r.Since)), sql.Named("until", bound(r.Until)),
		sql.Named("id", id), sql.Named("rows", r.Scan+1), // one more tells whether there is a next page
	}
	if r.Status.Terminal() {
		args = append(args, sql.Named("time", at))
	}
	return args
}

// deferrals fills in why rows are deferred. It asks only where some are.
func (s *Store) deferrals(ctx context.Context, records []outbox.Record) error {
	var (
		deferred []*outbox.Record
		asked    [][3]any
	)
	for i := range records {
		if r := &records[i]; r.Deferred {
			var key any
			if r.OrderingKey != "" {
				key = r.OrderingKey
			}
			deferred, asked = append(deferred, r), append(asked, [3]any{r.Broker, r.ID, key})
		}
	}
	if len(deferred) == 0 {
		return nil
	}
	encoded, err := json.Marshal(asked)
	if err != nil {
		return fmt.Errorf("encode the rows: %w", err)
	}
	return s.ask(ctx, func(rows *sql.Rows) error {
		var (
			place int
			byKey bool
			found outbox.Deferral
			until sql.NullInt64
		)
		if err := rows.Scan(&place, &byKey, &found.Reason, &found.MessageID, &until); err != nil {
			return err
		}
		found.MessageID = strings.ToLower(found.MessageID)
		if until.Int64 != math.MaxInt64 { // for an operator
			found.Until = moment(until.Int64)
		}
		if r := deferred[place]; byKey || r.Deferral == nil { // with a key it waits for all that the key waits for
			r.Deferral = &found
		}
		return nil
	}, s.sql.deferrals, sql.Named("rows", string(encoded)))
}

// listSQL joins the branches that hold the rows of a status. SQLite merges them while it reads, because each is in order by its index.
func (s *Store) listSQL(status outbox.Status, key string) string {
	var branches []string
	branch := func(rows string) { branches = append(branches, strings.ReplaceAll(s.sql.list, "{{rows}}", rows)) }
	order := "id DESC"
	switch {
	case status.Terminal():
		branch(s.sql.listTied)
		branch(s.sql.listFinished)
		order = "finished_at DESC, id DESC"
	case status == outbox.StatusFailed:
		branch(s.sql.listFailing)
	default:
		rows := s.sql.listShard
		if status == outbox.StatusProcessing {
			rows = s.sql.listHead
		}
		for shard := range outbox.Classes * s.Shards() {
			branch(strings.ReplaceAll(rows, "{{shard}}", strconv.Itoa(shard)))
		}
		switch {
		case status != outbox.StatusPending: // what is claimed is not deferred
		case key != "":
			branch(s.sql.listKey)
		default:
			branch(s.sql.listDeferred)
		}
	}
	return strings.Join(branches, "\n UNION ALL\n") + "\n ORDER BY " + order + "\n LIMIT :rows"
}
