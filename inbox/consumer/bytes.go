package consumer

// HeaderBytes is what a header, attribute or field of a message takes in memory beside its bytes, so that
// a foreign producer cannot fill it with empty ones: strings, and its share of a map. On the wire it is as
// little as two.
const HeaderBytes = 64

// AttributesBytes is what attributes take, for [Entry].Bytes.
func AttributesBytes(attributes map[string]string) int {
	n := HeaderBytes * len(attributes)
	for name, value := range attributes {
		n += len(name) + len(value)
	}
	return n
}
