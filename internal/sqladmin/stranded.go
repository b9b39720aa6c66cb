package sqladmin

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Stranded implements admin.Administration. Of rows that are not deferred, the first 1,000 of each
// shard are looked at, with the first page, where the schema permits a lease or a schedule without end.
func (a *Admin) Stranded(ctx context.Context, broker string, after admin.Position, limit int) (list admin.List, err error) {
	_, err = admin.Filter{Broker: broker}.For("stranded rows", limit)
	if limit > mostRows {
		err = errors.Join(err, fmt.Errorf("stranded rows: the limit is %d: use at most %d", limit, mostRows))
	}
	if err != nil {
		return admin.List{}, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	given := args{"broker": broker, "heads": after == admin.Position{}, "after_id": after.ID, "limit": int64(limit)}
	if after == (admin.Position{}) {
		given["after_id"] = int64(math.MinInt64)
	}
	var records []admin.Record
	err = a.read(ctx, Plain, func(ctx context.Context, conn Conn) error { // one statement where nothing is deferred, as on most days
		list, records = admin.List{}, nil
		deferred, last := 0, int64(math.MinInt64)
		err := a.query(ctx, conn, "stranded", given, func(scan scanner) error {
			var (
				r       = admin.Record{Broker: broker}
				page    bool
				key     *string
				created moment
			)
			err := scan(&page, &r.ID, &r.MessageID, &r.Status, &r.Type, &key, &r.Shard, &r.Deferred, &created)
			r.OrderingKey, r.CreatedAt = valueOf(key), created.Time
			if page {
				deferred, last = deferred+1, max(last, r.ID)
			}
			records = append(records, r)
			return err
		})
		if err != nil {
			return err
		}
		if list.Scanned = len(records); deferred == limit {
			list.Next = admin.Position{ID: last}
		}
		return nil
	})
	if err == nil && len(records) > 0 {
		err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error { return a.states(ctx, conn, records) })
	}
	if err != nil {
		return admin.List{}, a.failed(err, "look for stranded rows of broker %q in %s", broker, a.table)
	}
	for i := range records {
		if records[i].State == outbox.StateStranded {
			list.Records = append(list.Records, records[i])
		}
	}
	return list, nil
}
