package envelope

// Format is the shape of a message on the wire. Configuration chooses that of an external broker
// (`format:`): [FormatNative] or [FormatCloudEvents]. The internal broker always gets
// [FormatInternal].
type Format string

// The formats, all of which [Decode] recognises.
const (
	// FormatInternal is the internal form of this package. It never goes to an external broker.
	FormatInternal Format = "internal"
	// FormatNative is the external form of this package, the default of external brokers.
	FormatNative Format = "native"
	// FormatCloudEvents is CloudEvents 1.0, structured JSON.
	FormatCloudEvents Format = "cloudevents"
)

// ContentType returns the media type of a payload in this format. An unknown format has none: it
// returns "".
func (f Format) ContentType() string {
	switch f {
	case FormatInternal, FormatNative:
		return "application/json"
	case FormatCloudEvents:
		return "application/cloudevents+json"
	default:
		return ""
	}
}
