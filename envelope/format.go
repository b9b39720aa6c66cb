package envelope

// Format is the shape in which an external broker receives messages, as written
// in the configuration (`format:`). The internal broker always gets the internal
// form.
type Format string

const (
	// FormatNative is the external form of this package, the default.
	FormatNative Format = "native"
	// FormatCloudEvents is CloudEvents 1.0, structured JSON.
	FormatCloudEvents Format = "cloudevents"
)

// ContentType returns the media type of a payload in this format. An unknown
// format has none: it returns "".
func (f Format) ContentType() string {
	switch f {
	case FormatNative:
		return "application/json"
	case FormatCloudEvents:
		return "application/cloudevents+json"
	default:
		return ""
	}
}
