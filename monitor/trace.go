package monitor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// How much one trace holds: messages that the term names, and those that caused them or were caused by them.
const (
	maxTraced    = 200 // rows of each database that the term names
	maxRelated   = 200 // rows of each database beside them
	maxProcesses = 10  // correlation ids that are followed
)

// A Consumer is where a trace asks what became of messages after they were published.
type Consumer struct {
	// Broker is the one whose messages it gets.
	Broker string
	// Progress tells what the inbox has recorded of messages, by their ids; sources are the streams that they went to.
	Progress func(ctx context.Context, messages []uuid.UUID, sources []string) (map[uuid.UUID][]ConsumerProgress, error)
	// Types tells of which types the inbox has recorded that messages were handled: see inbox.HandledTypes. Optional:
	// without it a consumer counts as one that takes other types as soon as so much was published since its last
	// message that this one is not found.
	Types func(ctx context.Context) ([]string, error)
}

// WithConsumers names the consumers whose inboxes a trace looks into. Default: none.
func WithConsumers(consumers map[string]Consumer) Option {
	return func(c *Console) { c.consumers = maps.Clone(consumers) }
}

// WithRetention says for how long the finished rows of a broker are kept, for those who do not find one: config.Config.Retention.
// Default: it is not said.
func WithRetention(of func(broker string) cleanup.Retention) Option {
	return func(c *Console) { c.retention = of }
}

// WithNotKept names the brokers whose rows are removed as they are delivered ("keep: false"): config.Config.NotKept.
// What only such rows could tell is said to be not kept, in place of none. Default: none.
func WithNotKept(brokers ...string) Option {
	return func(c *Console) { c.notKept = append(c.notKept, brokers...) }
}

// keeps reports whether a broker's rows stay after they were delivered.
func (c *Console) keeps(broker string) bool { return !slices.Contains(c.notKept, broker) }

// orNotKept ends a sentence about a message that is not found, in which rows of the broker were looked for, or of all brokers where it
// is empty: what is not there may have been delivered.
func (c *Console) orNotKept(broker string) string {
	switch {
	case len(c.notKept) == 0 || broker != "" && c.keeps(broker):
		return ""
	case broker == "":
		broker = strings.Join(c.notKept, ", ")
	}
	return fmt.Sprintf(", or it was delivered and its rows not kept (keep: false, of broker %s)", broker)
}

// A TraceQuery asks for the way of messages.
type TraceQuery struct {
	// Term is the id of a message, an ordering key, or another id: see [admin.FindBy].
	Term string
	// By is what it names. Default: see [admin.FindRequest].
	By []admin.FindBy
	// Databases that are asked. Default: all.
	Databases []string
}

// Trace tells where all messages are that a term names, what caused them and what they have caused, in all databases
// and at the consumers that are known. Who cannot be asked is in the answer, beside what the others say. The
// error is a [*RefusedError] or a [*NotFoundError].
func (c *Console) Trace(ctx context.Context, query TraceQuery) (api.Trace, error) {
	request, err := admin.FindRequest{Term: query.Term, By: query.By, Limit: maxTraced}.WithDefaults()
	if err != nil {
		return api.Trace{}, refusef("%v", err)
	}
	databases := query.Databases
	if len(databases) == 0 {
		databases = c.Databases()
	}
	for _, database := range databases {
		if _, err := c.store(database); err != nil {
			return api.Trace{}, err
		}
	}
	t := &tracing{console: c, request: request, now: time.Now(), answer: api.Trace{Term: query.Term, By: request.By, Messages: []api.TracedMessage{}, Unasked: []api.Unasked{}}}
	var all sync.WaitGroup
	for _, database := range databases {
		all.Go(func() { t.database(ctx, database) })
	}
	all.Wait()
	t.consumers(ctx)
	t.finish(databases)
	return t.answer, nil
}

// tracing is one call of Trace.
type tracing struct {
	console *Console
	request admin.FindRequest
	now     time.Time

	mu     sync.Mutex
	answer api.Trace
}

// database adds the messages of one database.
func (t *tracing) database(ctx context.Context, database string) {
	messages, more, err := t.find(ctx, database)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer.Messages = append(t.answer.Messages, messages...)
	t.answer.More = t.answer.More || more
	if err != nil {
		t.answer.Unasked = append(t.answer.Unasked, api.Unasked{Database: database, Error: discreet.Text(err.Error())})
	}
}

// find returns the messages that the term names, and what belongs to them.
func (t *tracing) find(ctx context.Context, database string) (messages []api.TracedMessage, more bool, err error) {
	named, more, err := t.ask(ctx, database, t.request)
	if err != nil {
		return nil, false, err
	}
	for _, by := range t.request.By {
		if by == admin.ByTenant || by == admin.ByType { // lists, whose messages have nothing to do with each other
			return named, more, nil
		}
	}
	var related []api.TracedMessage
	for _, look := range relations(named) {
		if len(related) >= maxRelated {
			return append(named, related...), true, nil
		}
		look.Limit = maxRelated
		found, again, err := t.ask(ctx, database, look)
		if err != nil {
			return named, more, err
		}
		more = more || again
		for _, message := range found {
			same := func(m api.TracedMessage) bool { return m.MessageID == message.MessageID }
			if !slices.ContainsFunc(named, same) && !slices.ContainsFunc(related, same) {
				message.By = []admin.FindBy{}
				related = append(related, message)
			}
		}
	}
	return append(named, related...), more, nil
}

// relations are the searches for what belongs to messages: those of the same processes, and for a single message what it has
// caused and what caused it, whatever their correlation ids.
func relations(messages []api.TracedMessage) (looks []admin.FindRequest) {
	add := func(term string, by admin.FindBy) {
		same := func(l admin.FindRequest) bool { return l.Term == term && l.By[0] == by }
		if term != "" && len(looks) < maxProcesses && !slices.ContainsFunc(looks, same) {
			looks = append(looks, admin.FindRequest{Term: term, By: []admin.FindBy{by}})
		}
	}
	if len(messages) == 1 {
		add(messages[0].MessageID, admin.ByCausation)
		if _, err := uuid.Parse(messages[0].CausationID); err == nil {
			add(messages[0].CausationID, admin.ByMessage)
		}
	}
	for i := range messages {
		add(messages[i].CorrelationID, admin.ByCorrelation)
	}
	return looks
}

// ask asks a database for rows, and puts those of a message together.
func (t *tracing) ask(ctx context.Context, database string, request admin.FindRequest) (messages []api.TracedMessage, more bool, err error) {
	found, err := ask(ctx, t.console, database, func(ctx context.Context, store admin.Administration) (admin.Found, error) {
		return store.Find(ctx, request)
	})
	if err == nil {
		err = t.console.outages(ctx, database, found.Records)
	}
	if err != nil {
		return nil, false, err
	}
	for i := range found.Records {
		r := api.NewRecord("", &found.Records[i])
		at := slices.IndexFunc(messages, func(m api.TracedMessage) bool { return m.MessageID == r.MessageID })
		if at < 0 {
			at = len(messages)
			messages = append(messages, api.TracedMessage{
				Database: database, MessageID: r.MessageID, Type: r.Type, Key: r.Key, CreatedAt: r.CreatedAt, By: found.By[i],
				CorrelationID: r.CorrelationID, CausationID: r.CausationID,
			})
		}
		row := api.TracedRow{Row: r}
		explain(&row, t.now)
		messages[at].Rows = append(messages[at].Rows, row)
	}
	for i := range messages {
		messages[i].NotKept = t.console.notKeptBeside(messages[i].Rows)
		slices.SortFunc(messages[i].Rows, func(a, b api.TracedRow) int { return cmp.Compare(a.Row.Broker, b.Row.Broker) })
	}
	return messages, found.Next != (admin.Position{}), nil
}

// notKeptBeside are the brokers whose rows are removed as they are delivered and that have none among these.
func (c *Console) notKeptBeside(rows []api.TracedRow) (brokers []string) {
	for _, broker := range c.notKept {
		if !slices.ContainsFunc(rows, func(row api.TracedRow) bool { return row.Row.Broker == broker }) {
			brokers = append(brokers, broker)
		}
	}
	return brokers
}

// consumers asks all consumers about the messages of their brokers that are published.
func (t *tracing) consumers(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(t.console.consumers)) {
		consumer := t.console.consumers[name]
		rows, ids, sources := t.publishedTo(consumer.Broker)
		if len(rows) == 0 {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, t.console.timeout)
		progress, err := consumer.Progress(asking, ids, sources)
		cancel()
		if err != nil {
			t.answer.Unasked = append(t.answer.Unasked, api.Unasked{Consumer: name, Error: discreet.Text(err.Error())})
			continue
		}
		for i, row := range rows {
			if len(progress[ids[i]]) == 0 {
				row.Consumers = append(row.Consumers, explainConsumer(name, nil, t.now))
			}
			for _, p := range progress[ids[i]] {
				row.Consumers = append(row.Consumers, explainConsumer(name, &p, t.now))
			}
		}
	}
}

// publishedTo are the published rows of a broker, with the ids of their messages and the streams that they went to.
func (t *tracing) publishedTo(broker string) (rows []*api.TracedRow, ids []uuid.UUID, sources []string) {
	for i := range t.answer.Messages {
		for j := range t.answer.Messages[i].Rows {
			row := &t.answer.Messages[i].Rows[j]
			id, err := uuid.Parse(row.Row.MessageID)
			if err != nil || row.Row.Broker != broker || row.Row.Status != outbox.StatusPublished {
				continue
			}
			rows, ids = append(rows, row), append(ids, id)
			if !slices.Contains(sources, row.Row.Stream) {
				sources = append(sources, row.Row.Stream)
			}
		}
	}
	return rows, ids, sources
}

// furthest orders the steps at consumers: what needs a person most comes first.
var furthest = []api.Step{api.StepDeadLetter, api.StepFailing, api.StepQueued, api.StepRunning, api.StepDone}

// finish puts everything in order.
func (t *tracing) finish(databases []string) {
	slices.SortFunc(t.answer.Messages, func(a, b api.TracedMessage) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Rows[0].Row.ID, b.Rows[0].Row.ID), cmp.Compare(a.Database, b.Database))
	})
	for i := range t.answer.Messages {
		for j := range t.answer.Messages[i].Rows {
			row := &t.answer.Messages[i].Rows[j]
			for _, step := range slices.Backward(furthest) {
				if slices.ContainsFunc(row.Consumers, func(c api.TracedConsumer) bool { return c.Step == step }) {
					row.Step = step
				}
			}
		}
	}
	slices.SortFunc(t.answer.Unasked, func(a, b api.Unasked) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Consumer, b.Consumer))
	})
	if len(t.answer.Messages) == 0 {
		t.answer.Nothing = t.nothing(databases)
	}
}

// nothing says what it means that there is no message.
func (t *tracing) nothing(databases []string) string {
	var asked []string
	for _, database := range databases {
		if !slices.ContainsFunc(t.answer.Unasked, func(u api.Unasked) bool { return u.Database == database }) {
			asked = append(asked, database)
		}
	}
	if len(asked) == 0 {
		return "no database could be asked"
	}
	names := make([]string, len(t.request.By))
	for i, by := range t.request.By {
		names[i] = string(by)
	}
	kept := ""
	if c := t.console; c.retention != nil && len(c.brokers) > 0 {
		least := c.retention(c.brokers[0])
		for _, broker := range c.brokers[1:] {
			r := c.retention(broker)
			least.Published, least.Abandoned = min(least.Published, r.Published), min(least.Abandoned, r.Abandoned)
		}
		kept = fmt.Sprintf(" (after %s where they were published, after %s where they were abandoned, or later)", least.Published, least.Abandoned)
	}
	kept += t.console.orNotKept("")
	return fmt.Sprintf("no row of database %s has %q as its %s: its transaction was rolled back, or it was never raised, or its rows were purged%s",
		strings.Join(asked, ", "), t.request.Term, strings.Join(names, ", "), kept)
}
