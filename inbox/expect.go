package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// expectBatch is how many tokens one statement creates.
const expectBatch = 1000

// Expect creates a token for each of the keys: the consumer will handle a message of that key and
// source once, and take the token away as it does; see [WithTokens]. The source is what the
// consumer has in Message.Source: the stream or subscription that it reads, or what its
// [ConsumerConfig] names it. No message of another source can take the token. A key that the table
// knows already keeps what it has.
//
// Call it in the transaction that produces the messages, so that tokens exist before anything is
// sent, and exist exactly if it commits. The producer must so share a database with the consumer,
// and know who consumes what. Its message ids are known before the commit: gormplugin.Preview tells
// those of the events that the transaction is about to write, by the time it is called: call it
// last. An event that is raised, or whose aggregate is saved, after it has no token, and is never
// handled.
//
// A token is used up by the first copy that is handled, and later copies find none. One that is
// never used, since the message went somewhere else or the consumer was switched off, is removed by
// the [Purger] after PurgeConfig.Expected; its message would be a [Duplicate] from then on, so that
// must be longer than any message may be on its way.
//
// Many keys go in few statements. Outside a transaction the error wraps [uow.ErrNoTransaction]. Of
// the options it uses [WithTable].
func Expect(tx *gorm.DB, consumer, source string, keys []uuid.UUID, opts ...Option) error {
	s, statements, err := prepare(tx, opts)
	if err == nil {
		err = errors.Join(ValidateConsumer(consumer), ValidateSource(source))
	}
	if err != nil {
		return err
	}
	if _, ok := tx.Statement.ConnPool.(gorm.TxCommitter); !ok {
		return fmt.Errorf("inbox: create tokens in %s: %w", s.table, uow.ErrNoTransaction)
	}
	if slices.Contains(keys, uuid.Nil) {
		return fmt.Errorf("inbox: create tokens in %s: one of the %d keys is nil: give the message ids", s.table, len(keys))
	}
	ctx := tx.Statement.Context
	if ctx == nil {
		ctx = context.Background()
	}
	for chunk := range slices.Chunk(keys, expectBatch) {
		if _, err := exec(ctx, outside(tx), statements.expect, consumer, keyList(chunk), storedSource(source)); err != nil {
			return fmt.Errorf("inbox: create %d tokens in %s: %w", len(chunk), s.table, explain(err))
		}
	}
	return nil
}
