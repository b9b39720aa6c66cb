package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/monitor"
)

// maxInboxNames bounds the names that are read to find out what was meant.
const maxInboxNames = 100

// inboxNames are the consumers, and the types of dead letters, that databases have.
type inboxNames struct {
	table            string
	consumers, types []string
	found            int  // dead letters
	failed           bool // a database was not asked
}

// look notes how many dead letters were found in a database and, where there were none, what it has:
// consumers where one is named, and types of dead letters where one is.
func (n *inboxNames) look(ctx context.Context, db *gorm.DB, found int, consumer, messageType string) error {
	if n.found += found; n.found > 0 {
		return nil
	}
	rows := func() *gorm.DB { return db.WithContext(ctx).Table(n.table) }
	last := ""
	for range maxInboxNames {
		var next *string
		if err := rows().Select("MIN(consumer)").Where("consumer > ?", last).Scan(&next).Error; err != nil { // the primary key begins with it
			return err
		}
		if next == nil || consumer == "" {
			break
		}
		last = *next
		n.consumers = append(n.consumers, last)
	}
	if messageType == "" {
		return nil
	}
	var types []string
	dead := rows().Where("status = ? AND type IS NOT NULL", "dead_letter").Distinct("type").Limit(maxInboxNames)
	if consumer != "" {
		dead = dead.Where("consumer = ?", consumer)
	}
	if err := dead.Pluck("type", &types).Error; err != nil {
		return err
	}
	n.types = append(n.types, types...)
	return nil
}

// unknown is the error about a name that no database has, nil where a database has failed. A type is
// unknown if other dead letters have others.
func (n *inboxNames) unknown(consumer, messageType string) error {
	slices.Sort(n.consumers)
	slices.Sort(n.types)
	n.consumers, n.types = slices.Compact(n.consumers), slices.Compact(n.types)
	switch {
	case n.failed || n.found > 0:
		return nil
	case consumer != "" && !slices.Contains(n.consumers, consumer) && len(n.consumers) < maxInboxNames:
		return fmt.Errorf("there is no consumer %q in the table %s%s", consumer, n.table, monitor.DidYouMean(consumer, n.consumers))
	case messageType != "" && len(n.types) > 0 && !slices.Contains(n.types, messageType) && len(n.types) < maxInboxNames:
		return fmt.Errorf("no dead letter has the type %q%s", messageType, monitor.DidYouMean(messageType, n.types))
	default:
		return nil
	}
}

// missing is the error about messages that are no dead letters of a consumer that is known.
func (n *inboxNames) missing(consumer string, keys []uuid.UUID) error {
	if n.failed || n.found == 0 && !slices.Contains(n.consumers, consumer) {
		return nil
	}
	slices.SortFunc(keys, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	keys = slices.Compact(keys)
	switch absent := len(keys) - n.found; {
	case absent <= 0:
		return nil
	case len(keys) == 1:
		return fmt.Errorf("message %s is no dead letter of consumer %s: it is unknown, handled, or redriven already", keys[0], consumer)
	default:
		return fmt.Errorf("%s of %s messages are no dead letters of consumer %s: they are unknown, handled, or redriven already",
			thousands(int64(absent)), thousands(int64(len(keys))), consumer)
	}
}

// messages is a number of messages.
func messages(n int64) string {
	if n == 1 {
		return "1 message"
	}
	return thousands(n) + " messages"
}
