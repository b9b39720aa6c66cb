package outbox

import (
	"fmt"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// omittedEvery bounds how often a processor tells of attributes that were left out: whoever sends such ones does so with each message.
const omittedEvery = time.Minute

// tellOmitted says which attributes the broker has left out, by the example of one message.
func (w *worker) tellOmitted(chunk []*Message, results []brokers.Result) {
	number, first := 0, 0
	for i := range results {
		if results[i].Err != nil || len(results[i].Omitted) == 0 {
			continue
		}
		if number == 0 {
			first = i
		}
		number++
	}
	now, last := time.Now().UnixNano(), w.omitted.Load()
	if number == 0 || now-last < int64(omittedEvery) || !w.omitted.CompareAndSwap(last, now) {
		return
	}
	const most, length = 5, 40 // of what may be a thousand names, of a kilobyte each
	all := results[first].Omitted
	names := make([]string, min(len(all), most))
	for i := range names {
		names[i] = fmt.Sprintf("%.*s", length, strings.ToValidUTF8(all[i], "\uFFFD"))
	}
	w.log.Warn("delivered without attributes that the broker does not take", "messages", number, "message_id", chunk[first].MessageID,
		"attributes", names, "omitted", len(all))
}
