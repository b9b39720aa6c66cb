package gcppubsub

import (
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// emulatorVariable of the environment is read by the client library as well.
const emulatorVariable = "PUBSUB_EMULATOR_HOST"

// WithEmulator connects to an emulator at an address such as "localhost:8085": without TLS and
// without credentials, as PUBSUB_EMULATOR_HOST does for all brokers of the process that do not name
// an emulator of their own.
func WithEmulator(address string) Option {
	return func(o *options) {
		o.client = append(o.client, option.WithEndpoint(address), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
}
