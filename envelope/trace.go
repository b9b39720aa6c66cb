package envelope

import (
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// TraceParent is the span that a message was raised in: headers.traceparent.
// Source of the format: W3C Trace Context, https://www.w3.org/TR/trace-context/.
type TraceParent struct {
	TraceID  string `json:"trace_id"`  // 32 lower-case hex digits
	ParentID string `json:"parent_id"` // 16 lower-case hex digits
	Sampled  bool   `json:"sampled"`
}

// String returns the W3C header value, version 00.
func (p TraceParent) String() string {
	flags := "-00"
	if p.Sampled {
		flags = "-01"
	}
	return "00-" + p.TraceID + "-" + p.ParentID + flags
}

// ParseTraceParent reads a W3C traceparent header value. Versions above 00 are
// read by the rules for versions yet unknown. False means malformed, and the
// specification asks to go on without a parent, and without the tracestate.
func ParseTraceParent(s string) (TraceParent, bool) {
	const length = len("00-00000000000000000000000000000000-0000000000000000-00")
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return TraceParent{}, false
	}
	version, traceID, parentID, flags := s[:2], s[3:35], s[36:52], s[53:55]
	switch {
	case version == "ff",
		version == "00" && len(s) != length,
		len(s) > length && s[length] != '-',
		!isLowerHex(version), !isLowerHex(traceID), !isLowerHex(parentID), !isLowerHex(flags),
		strings.Trim(traceID, "0") == "", strings.Trim(parentID, "0") == "":
		return TraceParent{}, false
	}
	// The sampled flag is the lowest bit: an odd last digit.
	sampled := strings.IndexByte("13579bdf", flags[1]) >= 0
	return TraceParent{TraceID: traceID, ParentID: parentID, Sampled: sampled}, true
}

// isVersion00 reports whether a traceparent that ParseTraceParent has read is as String writes it.
func isVersion00(s string) bool {
	return strings.HasPrefix(s, "00-") && (strings.HasSuffix(s, "-00") || strings.HasSuffix(s, "-01"))
}

// isTraceState reports whether a tracestate can travel: at most as many bytes as every system that
// takes part must pass on, of printable ASCII. What is not is dropped as a whole:
// https://www.w3.org/TR/trace-context/#tracestate-limits allows it, and half a member would be
// another vendor's mistake.
func isTraceState(s string) bool {
	return len(s) <= limits.MaxTraceStateBytes && containsOnly(s, func(c byte) bool { return c >= ' ' && c <= '~' })
}

func isLowerHex(s string) bool {
	return containsOnly(s, isDigit, func(c byte) bool { return c >= 'a' && c <= 'f' })
}

// w3c renders a span context as traceparent and tracestate.
func w3c(span trace.SpanContext) (traceParent, traceState string) {
	const hex = "0123456789abcdef"
	traceID, spanID := span.TraceID(), span.SpanID()
	b := append(make([]byte, 0, 55), "00-"...)
	for _, c := range traceID {
		b = append(b, hex[c>>4], hex[c&0xf])
	}
	b = append(b, '-')
	for _, c := range spanID {
		b = append(b, hex[c>>4], hex[c&0xf])
	}
	flags := byte(span.TraceFlags())
	b = append(b, '-', hex[flags>>4], hex[flags&0xf])
	return string(b), span.TraceState().String()
}
