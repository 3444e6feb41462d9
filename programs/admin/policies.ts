import { readFile } from 'node:fs/promises';
import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { parseStrict } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto';
import { putFixture } from '#sql/administration';
import { activatePolicy, readPolicySet, storePolicySet } from '#sql/policies';
import { preparePolicyEngine } from '#policy/decide';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { argument, UsageError, type Command } from './command.js';

export const policyCommands: Command[] = [
  {
    name: 'policy put',
    takes: ['<folder>'],
    help: 'validate a folder of Cedar policies with its schema.cedarschema, and store it',
    run: async (sql, given) => {
      const set = await makePolicySet(await readPolicyFolder(argument(given, 0)));
      await storePolicySet(sql, set);
      return { digest: toHex(set.digest), policies: Object.keys(set.files.policies) };
    },
  },
  {
    name: 'policy activate',
    takes: ['<digest>'],
    help: 'let a stored set decide whatever is accepted from now on',
    run: async (sql, given) => {
      const digest = Buffer.from(argument(given, 0), 'hex');
      const stored = await readPolicySet(sql, digest);
      if (stored === null) throw new UsageError(`no policy set ${argument(given, 0)} is stored`);
      // A set that this version cannot run would hold back whatever is accepted under it.
      await preparePolicyEngine(stored);
      await activatePolicy(sql, digest);
      return { digest: toHex(digest), active: true };
    },
  },
  {
    name: 'fixture put',
    takes: ['<fixture_ref>', '<file.json>'],
    help: 'store a proof-chain fixture, a JSON document, under a reference, for ever',
    run: async (sql, given) => {
      const document = parseStrict(await readFile(argument(given, 1)));
      const content = canonicalBytes(document);
      const fixtureHash = nativeSha256(content);
      await putFixture(sql, { fixtureRef: argument(given, 0), fixtureHash, content });
      return { fixture_ref: argument(given, 0), fixture_hash: toHex(fixtureHash) };
    },
  },
];
