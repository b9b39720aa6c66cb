package envelope_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/gorm-fanout/fanout/envelope"
)

type benchLine struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Price    string `json:"price"`
}

type benchOrderPlaced struct {
	OrderID  string      `json:"order_id"`
	Customer string      `json:"customer"`
	Placed   time.Time   `json:"placed"`
	Total    float64     `json:"total"`
	Lines    []benchLine `json:"lines"`
	Note     string      `json:"note"`
}

func benchData() benchOrderPlaced {
	lines := make([]benchLine, 5)
	for i := range lines {
		lines[i] = benchLine{SKU: "4006381333931", Quantity: i + 1, Price: "12.50"}
	}
	return benchOrderPlaced{
		OrderID: "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b", Customer: "customer-4711", Total: 187.5,
		Placed: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Lines: lines,
		Note: "Leave it with the neighbours at number 5, please; the bell does not work.",
	}
}

// newBench returns an event whose data is about 500 bytes of JSON.
func newBench(b *testing.B) (*envelope.Catalog, envelope.Event, envelope.Source, envelope.Context) {
	b.Helper()
	catalog := envelope.NewCatalog("ordering")
	envelope.Register[benchOrderPlaced](catalog, envelope.Published(), envelope.Name("OrderPlaced"))
	if err := catalog.Err(); err != nil {
		b.Fatal(err)
	}
	event := envelope.NewEvent(benchData())
	ctx := envelope.WithCorrelationID(b.Context(), "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6c")
	ctx = envelope.WithTenantID(ctx, "acme")
	cx := envelope.FromContext(ctx)
	cx.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	return catalog, event, envelope.Source{Aggregate: "Order", ID: "42", Version: 7, Sequence: 1}, cx
}

type benchPublic struct {
	Order string  `json:"order"`
	Total float64 `json:"total"`
}

type benchLean struct {
	OrderID, Customer string
	Total             float64
}

// BenchmarkContract is what Raise costs with a contract: what partners get is made, and the event compared with what it
// was, where copies of it share memory.
func BenchmarkContract(b *testing.B) {
	catalog := envelope.NewCatalog("contracts")
	type order benchOrderPlaced // of which no other benchmark has a contract
	envelope.Register[order](catalog, envelope.Name("Placed"), envelope.Published(envelope.As(func(o order) benchPublic { return benchPublic{o.OrderID, o.Total} })))
	envelope.Register[benchLean](catalog, envelope.Published(envelope.As(func(o benchLean) benchPublic { return benchPublic{o.OrderID, o.Total} })))
	if err := catalog.Err(); err != nil {
		b.Fatal(err)
	}
	for name, data := range map[string]any{"with lines": order(benchData()), "flat": benchLean{"7", "customer-4711", 187.5}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = envelope.NewEvent(data)
			}
		})
	}
	runtime.KeepAlive(catalog) // whose functions are asked
}

// BenchmarkCamelCase is Seal of an event without names in its tags, under its Go names and in camelCase.
func BenchmarkCamelCase(b *testing.B) {
	type line struct {
		SKU, Price string
		Quantity   int
	}
	type order struct {
		OrderID, CustomerName, Note string
		Lines                       []line
	}
	from := benchData()
	data := order{OrderID: from.OrderID, CustomerName: from.Customer, Note: from.Note}
	for _, l := range from.Lines {
		data.Lines = append(data.Lines, line{l.SKU, l.Price, l.Quantity})
	}
	for name, opts := range map[string][]envelope.CatalogOption{"without": nil, "with": {envelope.WithCamelCase()}} {
		b.Run(name, func(b *testing.B) {
			catalog := envelope.NewCatalog("ordering", opts...)
			envelope.Register[order](catalog, envelope.Name("OrderPlaced"))
			event := envelope.NewEvent(data)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := catalog.Seal(event, envelope.Source{}, envelope.Context{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCommit is what one published event costs a commit: raise, seal, both
// forms.
func BenchmarkCommit(b *testing.B) {
	catalog, event, source, cx := newBench(b)
	b.ReportAllocs()
	for b.Loop() {
		m, err := catalog.Seal(envelope.NewEvent(event.Data), source, cx)
		if err != nil {
			b.Fatal(err)
		}
		if _, err = m.MarshalInternal(); err != nil {
			b.Fatal(err)
		}
		if _, err = m.MarshalExternal(envelope.Include{}); err != nil {
			b.Fatal(err)
		}
	}
}
