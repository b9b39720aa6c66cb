package sqlserver

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// A list of any length travels as one parameter, which OPENJSON unfolds. It is always
// nvarchar(max): a type that followed the list's length would make each length a plan of its own.

type publishedItem struct {
	ID              int64  `json:"i"`
	BrokerMessageID string `json:"b,omitempty"`
}

func publishedList(delivered []driver.Delivered, brokerIDs bool) (mssql.NVarCharMax, error) {
	items := make([]publishedItem, len(delivered))
	for i, d := range delivered {
		items[i].ID = d.ID
		if brokerIDs {
			items[i].BrokerMessageID = storable(d.BrokerMessageID)
		}
	}
	// All lock rows in the order of their ids, so that few of them deadlock.
	slices.SortFunc(items, func(a, b publishedItem) int { return cmp.Compare(a.ID, b.ID) })
	return jsonList(items)
}

type otherItem struct {
	ID      int64         `json:"i"`
	Status  outbox.Status `json:"s"`
	Spent   int           `json:"a"`
	Seconds int32         `json:"d"`
	Micros  int32         `json:"u"`
	Error   string        `json:"e,omitempty"`
	GoesOn  int           `json:"g,omitempty"`
}

func otherList(outcomes []driver.Outcome) (mssql.NVarCharMax, error) {
	items := make([]otherItem, len(outcomes))
	for i, o := range outcomes {
		items[i] = otherItem{ID: o.ID, Status: o.Status, Error: storable(o.LastError)}
		items[i].Seconds, items[i].Micros = splitDuration(o.Delay)
		if o.Spent {
			items[i].Spent = 1
		}
		if o.KeyGoesOn {
			items[i].GoesOn = 1
		}
	}
	slices.SortFunc(items, func(a, b otherItem) int { return cmp.Compare(a.ID, b.ID) })
	return jsonList(items)
}

func jsonList(items any) (mssql.NVarCharMax, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // a third of a typical error text would be escapes
	if err := encoder.Encode(items); err != nil {
		return "", fmt.Errorf("encode the outcomes: %w", err)
	}
	return mssql.NVarCharMax(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// storable replaces what a text column refuses, or a parameter would garble. Such a text comes from
// a broker; refusing it would make the outcome impossible to write, and the message would be sent
// forever.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}

// splitDuration cuts a duration into what DATEADD takes: it counts in int, and microseconds alone
// would be over after 35 minutes. Longer than 68 years is 68 years; less than nothing is nothing.
func splitDuration(d time.Duration) (seconds, micros int32) {
	d = min(max(d, 0), math.MaxInt32*time.Second)
	return int32(d / time.Second), int32(d % time.Second / time.Microsecond)
}

// durationArgs are the two parameters of a duration.
func durationArgs(name string, d time.Duration) []any {
	seconds, micros := splitDuration(d)
	return []any{sql.Named(name+"_seconds", seconds), sql.Named(name+"_micros", micros)}
}
