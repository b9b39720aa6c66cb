package postgres

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// complete queues the transaction that writes the completion.
func (x *exchange) complete() {
	if x.completion == nil {
		return
	}
	published, other := len(x.completion.Published) > 0, len(x.completion.Other) > 0
	if !published && !other {
		x.answer.Completed = &driver.Completed{}
		return
	}
	x.send(nil, begin)
	x.send(nil, x.store.sql.settings)
	if other {
		x.send(nil, x.store.sql.lock, shardLock(x.completion.Lease.Broker, x.completion.Lease.Shard))
		x.markOther()
	}
	if published {
		x.markPublished()
	}
	x.send(x.completed, "COMMIT")
}

// completed reads the answer to the COMMIT, after which the completion is durable.
func (x *exchange) completed(answers pgx.BatchResults) error {
	if _, err := answers.Exec(); err != nil {
		return err
	}
	x.answer.Completed = &driver.Completed{Lost: len(x.completion.Published) + len(x.completion.Other) - x.marked}
	return nil
}

func (x *exchange) countMarked(answers pgx.BatchResults) error {
	tag, err := answers.Exec()
	x.marked += int(tag.RowsAffected())
	return err
}

func (x *exchange) countOther(answers pgx.BatchResults) error {
	var marked int
	err := answers.QueryRow().Scan(&marked)
	x.marked += marked
	return err
}

func (x *exchange) markPublished() {
	ids, brokerIDs := publishedArrays(x.completion.Published)
	lease := &x.completion.Lease
	if x.completion.DeletePublished {
		x.send(x.countMarked, x.store.sql.deletePublished, lease.Broker, lease.Shard, pgUUID(lease.Token), lease.FirstID, lease.LastID, ids)
		return
	}
	x.send(x.countMarked, x.store.sql.markPublished,
		lease.Broker, lease.Shard, pgUUID(lease.Token), lease.FirstID, lease.LastID, ids, brokerIDs)
}

// publishedArrays writes two arrays as text, which the server reads as fast as the binary form; the
// driver makes that one element by element, and boxes each.
func publishedArrays(published []driver.Delivered) (ids, brokerIDs string) {
	const usual = 24 // bytes of an element with all around it
	numbers, texts := make([]byte, 1, usual*len(published)), make([]byte, 1, usual*len(published))
	numbers[0], texts[0] = '{', '{'
	for i := range published {
		if i > 0 {
			numbers, texts = append(numbers, ','), append(texts, ',')
		}
		numbers = strconv.AppendInt(numbers, published[i].ID, 10)
		texts = appendElement(texts, published[i].BrokerMessageID)
	}
	return string(append(numbers, '}')), string(append(texts, '}'))
}

// appendElement writes a text as an element of an array.
func appendElement(array []byte, text string) []byte {
	array = append(array, '"')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text = strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(storable(text))
			break
		}
	}
	return append(append(array, text...), '"')
}

func (x *exchange) markOther() {
	n := len(x.completion.Other)
	ids, statuses, spent := make([]int64, n), make([]string, n), make([]int32, n)
	delays, errs := make([]int64, n), make([]string, n)
	deferring := []int64{}
	for i, outcome := range x.completion.Other {
		ids[i], statuses[i] = outcome.ID, string(outcome.Status)
		delays[i], errs[i] = outcome.Delay.Microseconds(), storable(outcome.LastError)
		if outcome.Spent {
			spent[i] = 1
		}
		if x.completion.Blocks(&outcome) {
			deferring = append(deferring, outcome.ID)
		}
	}
	lease := &x.completion.Lease
	x.send(x.countOther, x.store.sql.markOther,
		lease.Broker, lease.Shard, pgUUID(lease.Token), lease.FirstID, lease.LastID, ids, statuses, spent, delays, errs, deferring)
}

// storable replaces what a text column refuses. Such a text comes from a broker; refusing it would
// make the outcome impossible to write, and the message would be sent forever.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}
