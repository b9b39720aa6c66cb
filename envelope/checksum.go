package envelope

import (
	"crypto/sha256"
	"encoding/hex"
)

// checksum is the SHA-256, in hex, of the canonical JSON (RFC 8785) of data, so
// that it survives whoever reorders members or reformats numbers on the way. As in
// RFC 8785, numbers are IEEE doubles: integers beyond 2^53 count as their nearest
// double.
func checksum(data []byte) (string, error) {
	var text [2 * sha256.Size]byte
	err := withCanonical(data, func(canonical []byte) {
		sum := sha256.Sum256(canonical)
		hex.Encode(text[:], sum[:])
	})
	if err != nil {
		return "", err
	}
	return string(text[:]), nil
}

// VerifyChecksum compares data with metadata.envelope.checksum, which only the
// internal form carries. The error is a *[ChecksumError] where they differ, and a
// *[DecodeError] where there is no checksum or data is not proper JSON.
func (m *Message) VerifyChecksum() error {
	want := m.Metadata.Envelope.Checksum
	if want == "" {
		return decodeFlaw(FormatInternal, "verify the internal form: external messages carry no checksum",
			"metadata.envelope.checksum is missing")
	}
	got, err := checksum(m.Data)
	if err != nil {
		return &DecodeError{FormatInternal, err, "the data was changed on its way: fetch the message again from its outbox row"}
	}
	if got != want {
		return &ChecksumError{ID: m.Metadata.Headers.ID, EventType: m.Metadata.Headers.Type, Want: want, Got: got}
	}
	return nil
}
