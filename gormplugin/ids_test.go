package gormplugin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
)

// TicketSold gets the id of its ticket.
type TicketSold struct {
	TicketID uint `fanout:"id"`
	Name     string
}

// TicketNamed has the id as text, in a struct that it embeds.
type TicketNamed struct {
	TicketRef
	Names []string
}

type TicketRef struct {
	Ref string `fanout:"id" json:"ref"`
}

// TicketLost forgets to ask for it.
type TicketLost struct{ TicketID uint }

// TicketShort has no room for every id.
type TicketShort struct {
	ID int8 `fanout:"id"`
}

func ticketCatalog(events *envelope.Catalog) {
	envelope.Register[TicketSold](events, envelope.Published(), envelope.Key(func(e TicketSold) string { return "ticket " + string(rune('0'+e.TicketID)) }))
	envelope.Register[TicketNamed](events)
	envelope.Register[TicketLost](events)
	envelope.Register[TicketShort](events)
}

// The id that the database gives is in the events that were raised before it did.
func TestIDsThatTheDatabaseMakes(t *testing.T) {
	t.Parallel()
	payload := func(b *bench, row int) map[string]any { return part(internalOf(b.t, b.rows()[row]), "data") }
	runCases(t, map[string]func(b *bench){
		"raised before the insert": func(b *bench) {
			ticket := &Ticket{Name: "a"}
			ticket.Raise(TicketSold{Name: "a"})
			ticket.Raise(TicketNamed{Names: []string{"x"}})
			b.ok(b.db.Create(ticket).Error)
			require.NotZero(b.t, ticket.ID)
			rows := b.rows()
			require.Len(b.t, rows, 3) // one of them for the partner
			assert.EqualValues(b.t, ticket.ID, payload(b, 0)["TicketID"])
			assert.Contains(b.t, string(rows[1].Payload), `"TicketID":`+*rows[0].AggregateID+`,`, "the partner's")
			assert.Equal(b.t, *rows[0].AggregateID, payload(b, 2)["ref"])
			assert.Equal(b.t, "ticket "+*rows[0].AggregateID, *rows[0].OrderingKey, "functions of the event see it")
		},
		"an id that does not fit": func(b *bench) {
			ticket := &Ticket{ID: 1000, Name: "a"}
			ticket.Raise(TicketShort{})
			err := b.db.Create(ticket).Error
			require.ErrorAs(b.t, err, new(*gormplugin.CaptureError))
			assert.Contains(b.t, err.Error(), `the id "1000" of its Ticket does not fit its field ID`)
			b.want()
		},
		"a zero id is warned of, once": func(b *bench) {
			for _, name := range []string{"a", "b"} {
				ticket := &Ticket{Name: name}
				ticket.Raise(TicketLost{})
				b.ok(b.db.Create(ticket).Error)
			}
			assert.Equal(b.t, 1, strings.Count(b.log.String(), "an event names its aggregate with a zero id"))
			assert.Contains(b.t, b.log.String(), "field=TicketID")
		},
	})
	onEach(t, func(b *bench) {
		ticket := &Ticket{Name: "a"}
		ticket.Raise(TicketLost{})
		err := b.db.Create(ticket).Error
		require.ErrorContains(b.t, err, "its field TicketID is zero")
		require.ErrorContains(b.t, err, `fanout:"id"`)
		b.want()
	}, gormplugin.WithStrict())
}

type refersByPointer struct {
	*TicketRef
}

type refersByFloat struct {
	ID float64 `fanout:"id"`
}

// A tag that cannot be followed is told at the start.
func TestTagsOfIDs(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	envelope.Register[refersByPointer](events)
	envelope.Register[refersByFloat](events)
	err := events.Err()
	require.ErrorContains(t, err, "refersByPointer: its field Ref has the tag `fanout:\"id\"`, and cannot be filled in")
	require.ErrorContains(t, err, "refersByFloat: its field ID has the tag")
}
