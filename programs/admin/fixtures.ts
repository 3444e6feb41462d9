import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { ProtocolError } from '#protocol/errors';
import { parseStrict, type JsonValue } from '#protocol/json';
import { textSchema } from '#protocol/schemas/primitives';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { listFixtures, putFixture } from '#sql/tenants/administration';
import { UsageError, type Command } from './command.js';
import { readOperatorsFile } from './files.js';

export const fixtureCommands: Command[] = [
  {
    name: 'fixture put',
    takes: ['<fixture_ref>', '<file.json>'],
    help: 'store a proof-chain fixture (a JSON document) permanently under a reference',
    example: 'fixture put booking-chain-1 fixtures/booking.json',
    run: async (admin, given) => {
      const fixtureRef = given.argument(0);
      if (!textSchema.safeParse(fixtureRef).success) {
        throw new UsageError('a fixture reference must be 1 to 512 characters');
      }
      const content = canonicalBytes(await readDocument(given.argument(1)));
      const fixtureHash = nativeSha256(content);
      const stored = await admin.act((tx) => putFixture(tx, { fixtureRef, fixtureHash, content }));
      return { document: { fixture_ref: fixtureRef, fixture_hash: toHex(fixtureHash), stored } };
    },
  },
  {
    name: 'fixture list',
    takes: [],
    help: 'list the stored fixtures',
    example: 'fixture list',
    run: async (admin) => {
      const fixtures = await listFixtures(await admin.database());
      return {
        document: fixtures.map((fixture) => ({
          fixture_ref: fixture.fixtureRef,
          fixture_hash: toHex(fixture.fixtureHash),
          bytes: fixture.bytes,
          created_at: fixture.createdAt,
        })),
      };
    },
  },
];

async function readDocument(file: string): Promise<JsonValue> {
  const bytes = await readOperatorsFile(file);
  try {
    return parseStrict(bytes);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    throw new OperatorError(`${file} is not a JSON document: ${error.message}`, { cause: error });
  }
}
