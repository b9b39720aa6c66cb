package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var _ driver.Poller = (*Store)(nil)

// brokerParameter is the broker in the text of Ready.
var brokerParameter = regexp.MustCompile(`\$1\b`)

// ofBroker takes the broker of the text from the parameter of that number.
func ofBroker(ready string, place int) string {
	return brokerParameter.ReplaceAllLiteralString(ready, "$"+strconv.Itoa(place))
}

// AnyReady implements driver.Poller: the statement of Ready, once for each broker, in one. It uses no
// low-water marks, which a store that was opened for this question has not, and learns none.
func (s *Store) AnyReady(ctx context.Context, brokers []string) (bool, error) {
	if len(brokers) == 0 {
		return false, nil
	}
	none := make([]int64, outbox.Classes*outbox.Shards)
	texts := make([]string, outbox.Classes*outbox.Shards)
	for shard := range texts {
		none[shard], texts[shard] = -1, "{}" // a version that no shard has
	}
	args := []any{nil, none, none, int64(0), []int64{}, texts, none}
	text := "SELECT false"
	for n, broker := range brokers {
		place := 1
		if n == 0 {
			args[0] = broker
		} else {
			args = append(args, broker)
			place = len(args)
		}
		//nolint:modernize,perfsprint // a few brokers, and sqlcheck follows texts
		text += "\n OR EXISTS (SELECT FROM (\n" + ofBroker(s.sql.ready, place) + "\n) AS ready WHERE shard >= 0)"
	}
	var found bool
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, text, args...).Scan(&found)
	})
	if err != nil {
		return false, fmt.Errorf("postgres: look for ready rows in %s: %w", s.table, err)
	}
	return found, nil
}
