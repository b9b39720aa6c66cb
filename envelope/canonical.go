package envelope

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// withCanonical calls use with the canonical JSON (RFC 8785) of data, which is
// valid only until use returns.
//
// The library decides what is canonical; but it takes longer than all the rest of
// sealing, so what is canonical on sight is done here: names in plain ASCII,
// strings whose escapes are canonical already, numbers of at most 15 digits
// without an exponent. All else, errors included, goes to the library. A fuzz
// test compares the two.
func withCanonical(data []byte, use func(canonical []byte)) error {
	c := canonicalizers.Get().(*canonicalizer) //nolint:forcetypeassert // the pool holds nothing else
	defer c.free()
	if c.transform(data) {
		use(c.out)
		return nil
	}
	canonical, err := jcs.Transform(data)
	if err != nil {
		return fmt.Errorf("canonical JSON: %w", err)
	}
	use(canonical)
	return nil
}

var canonicalizers = sync.Pool{New: func() any { return new(canonicalizer) }}

// canonicalizer reads JSON and writes it sorted. Every method reports false for
// input that is not canonical on sight.
type canonicalizer struct {
	in      []byte
	pos     int
	out     []byte
	members []member // of the objects that are open, innermost last
	scratch []byte
	depth   int
}

// member of an object: its name, and where in out it stands.
type member struct {
	name       []byte
	start, end int
}

func (c *canonicalizer) free() {
	c.in = nil
	if cap(c.out) <= maxPooledBuffer && cap(c.scratch) <= maxPooledBuffer {
		clear(c.members[:cap(c.members)]) // names point into the data
		canonicalizers.Put(c)
	}
}

func (c *canonicalizer) transform(data []byte) bool {
	c.in, c.pos, c.depth = data, 0, 0
	c.out, c.members = c.out[:0], c.members[:0]
	if !utf8.Valid(data) || !c.value() {
		return false
	}
	c.space()
	return c.pos == len(c.in)
}

func (c *canonicalizer) value() bool {
	c.space()
	switch b := c.peek(); {
	case b == '{':
		return c.nested(c.object)
	case b == '[':
		return c.nested(c.array)
	case b == '"':
		_, ok := c.string()
		return ok
	case b == '-' || isDigit(b):
		return c.number()
	default:
		return c.literal("true") || c.literal("false") || c.literal("null")
	}
}

func (c *canonicalizer) nested(read func() bool) bool {
	const deep = 100 // an event that is deeper can wait for the library
	c.depth++
	ok := c.depth <= deep && read()
	c.depth--
	return ok
}

func (c *canonicalizer) array() bool {
	c.copy(1)
	for first := true; ; first = false {
		c.space()
		if c.peek() == ']' && first {
			break
		}
		if !c.value() {
			return false
		}
		c.space()
		if c.peek() != ',' {
			break
		}
		c.copy(1)
	}
	return c.expect(']')
}

func (c *canonicalizer) object() bool {
	c.copy(1)
	body, outer, sorted := len(c.out), len(c.members), true
	for {
		c.space()
		if c.peek() == '}' && len(c.members) == outer {
			break
		}
		start := len(c.out)
		name, ok := c.string()
		if !ok || !plainName(name) {
			return false
		}
		c.space()
		if !c.expect(':') || !c.value() {
			return false
		}
		if n := len(c.members); n > outer && bytes.Compare(c.members[n-1].name, name) >= 0 {
			sorted = false
		}
		c.members = append(c.members, member{name, start, len(c.out)})
		c.space()
		if c.peek() != ',' {
			break
		}
		c.copy(1)
	}
	if !sorted && !c.sort(c.members[outer:], body) {
		return false
	}
	c.members = c.members[:outer]
	return c.expect('}')
}

// sort rewrites the members of an object, which begin at body. A name that occurs
// twice is an error of the library's to report.
func (c *canonicalizer) sort(members []member, body int) bool {
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	c.scratch = append(c.scratch[:0], c.out[body:]...)
	c.out = c.out[:body]
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(members[i-1].name, m.name) {
				return false
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.scratch[m.start-body:m.end-body]...)
	}
	return true
}

// string returns what stands between the quotes.
func (c *canonicalizer) string() ([]byte, bool) {
	if c.peek() != '"' {
		return nil, false
	}
	for i := c.pos + 1; i < len(c.in); i++ {
		switch b := c.in[i]; {
		case b == '"':
			content := c.in[c.pos+1 : i]
			c.copy(i + 1 - c.pos)
			return content, true
		case b < ' ':
			return nil, false
		case b == '\\':
			i++
			// The other escapes have a shorter canonical form.
			if i == len(c.in) || strings.IndexByte(`"\bfnrt`, c.in[i]) < 0 {
				return nil, false
			}
		}
	}
	return nil, false
}

// plainName: sorted by bytes as it would be by UTF-16 code units.
func plainName(name []byte) bool {
	for _, b := range name {
		if b == '\\' || b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// number accepts what ECMAScript would print the same way: a double tells any two
// decimals of up to 15 digits apart, so the shortest decimal for it is the one we
// read, and from 1e-6 to 1e21 it is printed without an exponent.
func (c *canonicalizer) number() bool {
	rest := c.in[c.pos:]
	negative := rest[0] == '-'
	if negative {
		rest = rest[1:]
	}
	whole := leadingDigits(rest)
	rest = rest[len(whole):]
	zero := string(whole) == "0"
	if len(whole) == 0 || whole[0] == '0' && !zero {
		return false
	}
	var fraction []byte
	if len(rest) > 0 && rest[0] == '.' {
		fraction = leadingDigits(rest[1:])
		rest = rest[1+len(fraction):]
		if !plainFraction(fraction, zero) {
			return false
		}
	} else if zero && negative {
		return false // -0 is 0
	}
	exponent := len(rest) > 0 && (rest[0] == 'e' || rest[0] == 'E')
	if exponent || len(whole)+len(fraction) > 15 {
		return false
	}
	c.copy(len(c.in) - c.pos - len(rest))
	return true
}

// plainFraction: no trailing zero, and not so small that an exponent is printed.
func plainFraction(digits []byte, zeroBefore bool) bool {
	if len(digits) == 0 || digits[len(digits)-1] == '0' {
		return false
	}
	return !zeroBefore || len(bytes.Trim(digits[:min(6, len(digits))], "0")) > 0
}

func leadingDigits(b []byte) []byte {
	n := 0
	for n < len(b) && isDigit(b[n]) {
		n++
	}
	return b[:n]
}

func (c *canonicalizer) literal(word string) bool {
	if !bytes.HasPrefix(c.in[c.pos:], []byte(word)) {
		return false
	}
	c.copy(len(word))
	return true
}

func (c *canonicalizer) expect(b byte) bool {
	if c.peek() != b {
		return false
	}
	c.copy(1)
	return true
}

// peek returns the next byte, 0 at the end: no JSON has that outside strings.
func (c *canonicalizer) peek() byte {
	if c.pos == len(c.in) {
		return 0
	}
	return c.in[c.pos]
}

// copy takes n bytes over as they are.
func (c *canonicalizer) copy(n int) {
	c.out = append(c.out, c.in[c.pos:c.pos+n]...)
	c.pos += n
}

func (c *canonicalizer) space() {
	for c.pos < len(c.in) {
		switch c.in[c.pos] {
		case ' ', '\t', '\r', '\n':
			c.pos++
		default:
			return
		}
	}
}
