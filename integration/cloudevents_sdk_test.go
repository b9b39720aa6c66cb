package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/envelope"
)

// reporter is what *testing.T and *rapid.T have in common.
type reporter interface {
	require.TestingT
	Helper()
}

// readBySDK reads a CloudEvent with the SDK of the CloudEvents project and has it validated. What
// the SDK writes then must say to us what the original says.
func readBySDK(t reporter, b []byte) event.Event {
	t.Helper()
	var e event.Event
	require.NoError(t, json.Unmarshal(b, &e), "%s", b)
	require.NoError(t, e.Validate(), "%s", b)
	require.Equal(t, "1.0", e.SpecVersion())

	again, err := e.MarshalJSON()
	require.NoError(t, err)
	before, err := envelope.DecodeCloudEvent(b)
	require.NoError(t, err)
	after, err := envelope.DecodeCloudEvent(again)
	require.NoError(t, err)
	require.Equal(t, before, after, "%s\n%s", b, again)
	return e
}

// sdkDocument is an event that holds anything.
type sdkDocument struct{ Body any }

// Whatever an event holds and a request knows: the SDK takes the CloudEvent and reads back each of
// its attributes.
func TestSDKReadsCloudEvents(t *testing.T) {
	t.Parallel()
	c := envelope.NewCatalog("ordering")
	envelope.Register[sdkDocument](c, envelope.Published())
	require.NoError(t, c.Err())
	text := rapid.StringMatching(`([!-~äßж日🚀]([ -~äßж日🚀]{0,20}[!-~äßж日🚀])?)?`) // not blank: the SDK takes a blank subject for none

	rapid.Check(t, func(t *rapid.T) {
		ctx := envelope.WithCorrelationID(t.Context(), text.Draw(t, "correlation"))
		ctx = envelope.WithCausationID(ctx, text.Draw(t, "causation"))
		ctx = envelope.WithTenantID(ctx, text.Draw(t, "tenant"))
		if rapid.Bool().Draw(t, "trace") {
			ctx = envelope.WithTrace(ctx, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", rapid.SampledFrom([]string{"", "vendor=a:1"}).Draw(t, "state"))
		}
		own := map[string]any{} // as the SDK reads them
		for name, value := range rapid.MapOfN(rapid.StringMatching(`x[a-z0-9]{0,19}`), attribute(), 0, 5).Draw(t, "extensions") {
			ctx = envelope.WithExtension(ctx, name, value) //nolint:fatcontext // five at most
			if value != nil {
				own[name] = attributeOf(t, value)
			}
		}
		source := envelope.Source{Sequence: rapid.IntRange(0, 9).Draw(t, "n"), Version: rapid.Int64Range(0, 1<<40).Draw(t, "version")}
		if rapid.Bool().Draw(t, "aggregate") {
			source.Aggregate = rapid.StringMatching(`[A-ZÄ][A-Za-z0-9ß]{0,10}`).Draw(t, "type")
			source.ID = text.Filter(func(id string) bool { return id != "" }).Draw(t, "id")
		}
		opts := envelope.CloudEventOptions{
			TraceState: true,
			Source:     rapid.SampledFrom([]string{"", "urn:example:shop", "/shop", "https://shop.example.com/a%20b?x=1#y"}).Draw(t, "source"),
		}
		raised := envelope.NewEvent(sdkDocument{jsonValue().Draw(t, "data")})
		raised.Time = time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "time")).UTC()
		m, err := c.Seal(raised, source, envelope.FromContext(ctx))
		if err != nil { // only numbers that JSON does not have
			var encode *envelope.EncodeError
			require.ErrorAs(t, err, &encode)
			t.Skip(err)
		}
		sequence := ""
		if source.Version > 0 {
			sequence = fmt.Sprintf("%019d.%010d", source.Version, source.Sequence)
		}
		opts.Extensions = slices.Sorted(maps.Keys(m.Metadata.Extensions))
		b, err := m.MarshalCloudEvent(opts)
		require.NoError(t, err)

		e := readBySDK(t, b)
		require.Equal(t, m.Metadata.Headers.ID.String(), e.ID())
		require.Equal(t, m.Metadata.Headers.Type, e.Type())
		require.Equal(t, source.ID, e.Subject())
		require.True(t, m.Metadata.Headers.Time.Equal(e.Time()), "%s %s", m.Metadata.Headers.Time, e.Time())
		require.Equal(t, "application/json", e.DataContentType())
		require.Equal(t, string(m.Data), string(e.Data()))
		if opts.Source != "" {
			require.Equal(t, opts.Source, e.Source())
		}
		for name, value := range map[string]string{
			"traceparent": m.Routing.TraceParent, "tracestate": m.Routing.TraceState, "partitionkey": m.Routing.OrderingKey,
			"sequence": sequence, "correlationid": m.Routing.CorrelationID, "causationid": m.Routing.CausationID,
			"tenantid": m.Routing.TenantID,
		} {
			if value != "" {
				own[name] = value
			}
		}
		if len(own) == 0 {
			own = nil
		}
		require.Equal(t, own, e.Extensions())
	})
}

// jsonValue draws what JSON can hold, and numbers that it cannot.
func jsonValue() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(),
	)
	return rapid.OneOf(
		leaf,
		rapid.SliceOfN(leaf, 0, 4).AsAny(),
		rapid.MapOfN(rapid.String(), leaf, 0, 6).AsAny(),
		rapid.MapOfN(rapid.StringMatching(`[a-z_]{1,8}`), rapid.SliceOfN(leaf, 0, 3).AsAny(), 0, 6).AsAny(),
	)
}

// attribute draws a value that CloudEvents can carry, or that becomes one.
func attribute() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.StringMatching(`[ -~äßж日🚀]{0,20}`).AsAny(),
		rapid.Int32().AsAny(),
		rapid.Int64().AsAny(),
		rapid.Float64Range(1e-6, 1e20).AsAny(),
	)
}

// attributeOf is what becomes of a value: integers of 32 bits stay numbers, all others travel as
// strings.
func attributeOf(t *rapid.T, value any) any {
	switch value.(type) {
	case bool, string:
		return value
	}
	text, err := json.Marshal(value)
	require.NoError(t, err)
	if n, err := strconv.ParseInt(string(text), 10, 32); err == nil {
		return int32(n)
	}
	return string(text)
}
