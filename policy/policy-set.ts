import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import * as z from 'zod';
import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import type { Counters } from '#protocol/policy-input';
import { attempt } from '#protocol/errors';
import { canonicalize, type JsonValue, parseStrict } from '#protocol/json';
import { FACT_NAME_PATTERN, NAME_FAULT } from '#protocol/schemas/facts';
import { safeParse } from '#protocol/schemas/messages';
import { ACTION_PATTERN, isAscending } from '#protocol/schemas/primitives';
import { utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { PolicyFiles, StoredPolicySet } from '#sql/admissions/policies';

/** The texts do not parse, do not validate, or do not match their digest. */
export class PolicySetError extends OperatorError {}

export const messages = (errors: { message: string }[]): string =>
  errors.map((error) => error.message).join('; ');

export const CEDAR_VERSION = cedar.getCedarVersion();

let wasmDigest: string | undefined;

/** Decisions depend on Cedar, so a set's digest covers Cedar's code. */
async function engineDigest(): Promise<string> {
  if (wasmDigest === undefined) {
    const entry = createRequire(import.meta.url).resolve('@cedar-policy/cedar-wasm/nodejs');
    const wasm = await readFile(join(entry, '..', 'cedar_wasm_bg.wasm'));
    wasmDigest = hashHex(nativeSha256, wasm);
  }
  return wasmDigest;
}

export const SCHEMA_FILE = 'schema.cedarschema';

export const COUNTERS_FILE = 'counters.json';

/** The counters in `counters.json` of a folder; none if the folder does not have this file. */
async function readCounters(folder: string): Promise<Counters> {
  const isThere = (await readdir(folder)).includes(COUNTERS_FILE);
  return isThere ? parseCounters(await readFile(join(folder, COUNTERS_FILE))) : {};
}

const counterSchema = z.strictObject({
  /** The counted actions; null means all. */
  actions: z
    .array(z.string().regex(ACTION_PATTERN, 'expected an action'))
    .min(1, 'expected at least one action, or null for all')
    .refine(isAscending, 'expected distinct actions in ascending order')
    .nullable(),
  /** The fact that the counter sums; null for a counter of actions. */
  sum: z.string().regex(FACT_NAME_PATTERN, 'expected the name of a fact').nullable(),
  per: z.enum(['tenant', 'agent', 'run']),
  window: z.enum(['day', 'run']),
});

const countersSchema: z.ZodType<Counters> = z.record(
  z.string().regex(FACT_NAME_PATTERN),
  counterSchema,
  { error: ({ code }) => (code === 'invalid_key' ? NAME_FAULT : undefined) },
);

/** @throws PolicySetError */
export function parseCounters(bytes: Uint8Array): Counters {
  const refuse = (why: string): never => {
    throw new PolicySetError(`${COUNTERS_FILE}: ${why}`);
  };
  let document: JsonValue;
  try {
    document = parseStrict(bytes);
  } catch (error) {
    return refuse((error as Error).message);
  }
  const parsed = safeParse(countersSchema, document);
  if (!parsed.success) {
    const issues = parsed.error.issues.map(
      ({ path, message }) => `${path.join('.') || 'the file'}: ${message}`,
    );
    return refuse(issues.join('; '));
  }
  // Rejects a member `__proto__`, which zod drops.
  if (canonicalize(parsed.data) !== canonicalize(document)) refuse('__proto__ is not a name');
  return parsed.data;
}

/** Excludes `__proto__`, because assigning this member to an object does not create it. */
const POLICY_FILE = /^[A-Za-z0-9][\w.-]*\.cedar$/;

/** The texts of `schema.cedarschema` and every `<policy id>.cedar` of a folder, unchanged, and its counters. */
export async function readPolicyTexts(folder: string): Promise<Omit<PolicyFiles, 'sentences'>> {
  const schema = await readFile(join(folder, SCHEMA_FILE), 'utf8');
  return { schema, policies: await readRules(folder), counters: await readCounters(folder) };
}

/** The text of each rule, by rule id. @throws PolicySetError for a `.cedar` file whose name does not match */
export async function readRules(folder: string): Promise<PolicyFiles['policies']> {
  const names = (await readdir(folder)).filter((name) => /\.cedar$/i.test(name)).sort();
  const misnamed = names.find((name) => !POLICY_FILE.test(name));
  if (misnamed !== undefined) {
    throw new PolicySetError(
      `${misnamed}: expected a file name that matches ${POLICY_FILE.source}`,
    );
  }
  const policies = names.map(async (name) => [
    name.slice(0, -'.cedar'.length),
    await readFile(join(folder, name), 'utf8'),
  ]);
  return Object.fromEntries(await Promise.all(policies)) as PolicyFiles['policies'];
}

export async function readPolicyFolder(folder: string): Promise<PolicyFiles> {
  const texts = await readPolicyTexts(folder);
  return { ...texts, sentences: sentencesIn(texts.policies) };
}

/** The `@sentence` of each policy, by policy id. @throws PolicySetError when a text does not parse */
export function sentencesIn(policies: PolicyFiles['policies']): Record<string, string> {
  const sentences: Record<string, string> = {};
  for (const [id, text] of Object.entries(policies)) {
    const answer = cedar.policyToJson(text);
    if (answer.type !== 'success') {
      throw new PolicySetError(`policy ${id} does not parse: ${messages(answer.errors)}`);
    }
    const sentence = answer.json.annotations?.['sentence'];
    if (typeof sentence === 'string') sentences[id] = sentence;
  }
  return sentences;
}

/** @throws PolicySetError when a text does not parse or validate */
export async function makePolicySet(files: PolicyFiles): Promise<StoredPolicySet> {
  requireValid(files);
  const manifest = manifestOf(files, await runningEngine());
  return { digest: digestOf(manifest), manifest, files };
}

export const digestOf = (text: string): Buffer => Buffer.from(nativeSha256(utf8(text)));

/** @throws PolicySetError when a text does not parse or validate */
export function requireValid(files: PolicyFiles): void {
  const answer = cedar.validate({
    validationSettings: { mode: 'strict' },
    schema: files.schema,
    policies: { staticPolicies: files.policies },
  });
  if (answer.type !== 'success') throw new PolicySetError(messages(answer.errors));
  const errors = answer.validationErrors.map((e) => `${e.policyId}: ${e.error.message}`);
  if (errors.length > 0) throw new PolicySetError(errors.join('; '));
}

export interface EngineIdentity {
  engine_version: string;
  /** SHA-256 of the code of the policy engine, Cedar. */
  engine_sha256: string;
}

export async function runningEngine(): Promise<EngineIdentity> {
  return { engine_version: CEDAR_VERSION, engine_sha256: await engineDigest() };
}

const identitySchema = z.looseObject({ engine_version: z.string(), engine_sha256: z.string() });

/** The engine in a set's manifest; null if the manifest does not match the digest and so proves nothing. */
export function engineOf({
  digest,
  manifest,
}: Pick<StoredPolicySet, 'digest' | 'manifest'>): EngineIdentity | null {
  if (!digestOf(manifest).equals(digest)) return null;
  return attempt(() => identitySchema.parse(JSON.parse(manifest))) ?? null;
}

/** The manifest of a set. The digest of the set is the SHA-256 of the manifest. */
export function manifestOf(files: PolicyFiles, engine: EngineIdentity): string {
  return canonicalize({
    schema_version: 'svc.policy.manifest/1.1',
    engine: 'cedar',
    engine_version: engine.engine_version,
    engine_sha256: engine.engine_sha256,
    schema_sha256: hashHex(nativeSha256, utf8(files.schema)),
    policies_sha256: Object.fromEntries(
      Object.entries(files.policies).map(([id, text]) => [id, hashHex(nativeSha256, utf8(text))]),
    ),
    counters: files.counters ?? {},
  });
}
