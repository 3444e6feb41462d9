import { toHex } from '#protocol/bytes';
import { canonicalBytes, parseStrict } from '#protocol/json';
import { ProtocolError } from '#protocol/errors';
import { textSchema } from '#protocol/schemas/primitives';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { listFixtures, putFixture } from '#sql/tenants/administration';
import { readOperatorsFile, snakeCase, UsageError, type AddCommand } from './command.js';

export function addFixtureCommands(add: AddCommand): void {
  add(
    'fixture put <fixture_ref> <file.json>',
    'Store a JSON document permanently under a reference, which requests name as proof_chain_fixture_ref',
    'booking-chain-1 fixtures/booking.json',
    async ({ act }, fixtureRef: string, file: string) => {
      if (!textSchema.safeParse(fixtureRef).success) {
        throw new UsageError('a fixture reference must be 1 to 512 characters');
      }
      const content = await readCanonical(file);
      const fixtureHash = nativeSha256(content);
      const stored = await act((tx) => putFixture(tx, { fixtureRef, fixtureHash, content }));
      return { fixture_ref: fixtureRef, fixture_hash: toHex(fixtureHash), stored };
    },
  );
  add('fixture list', 'List the stored fixtures', '', async ({ database }) => {
    const fixtures = await listFixtures(await database());
    return fixtures.map((one) => snakeCase({ ...one, fixtureHash: toHex(one.fixtureHash) }));
  });
}

async function readCanonical(file: string): Promise<Uint8Array> {
  const bytes = await readOperatorsFile(file);
  try {
    return canonicalBytes(parseStrict(bytes));
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    throw new OperatorError(`${file} is not a JSON document: ${cause.message}`, { cause });
  }
}
