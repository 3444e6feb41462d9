import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type * as z from 'zod';
import { PROBLEMS as ENGINE_PROBLEMS } from '#api/engine/http/problem';
import { engineOpenApi } from '#api/engine/openapi/document';
import { OPERATIONS } from '#api/engine/operations';
import { openApiDocument } from '#api/openapi/document';
import { PROBLEMS as PUBLIC_PROBLEMS } from '#api/public/http/problem';
import { publicDescription } from '#api/public/openapi/description';
import { OPERATIONS as PUBLIC_OPERATIONS } from '#api/public/operations';
import { helpTexts as adminHelpTexts } from '#programs/admin/main';
import { SETTINGS } from '#runtime/config';
import { packageRoot } from '#runtime/process/files';
import { helpTexts } from '#sdk/cli/main';
import { FAULTS } from './faults/scenarios/index.js';

/**
 * Interfaces that users and auditors depend on, so that a change to them shows in review. The
 * database schema is in sql/schema.txt. After an intended change run `npx vitest run
 * test/golden.test.ts -u`.
 */
const golden: Record<string, () => string> = {
  'engine-openapi.txt': () => json(engineOpenApi(OPERATIONS.map(({ spec }) => spec))),
  'public-openapi.txt': () =>
    json(
      openApiDocument(
        PUBLIC_OPERATIONS.map(({ spec }) => spec),
        publicDescription(),
      ),
    ),
  'svc-help.txt': () => pages(helpTexts()),
  'admin-help.txt': () => pages(adminHelpTexts()),
  'fault-scenarios.txt': () => `${FAULTS.map(({ name }) => name).join('\n')}\n`,
  'vectors.sha256': () => hashesUnder('protocol/vectors').join(''),
  '../../docs/errors.md': errorsPage,
  '../../docs/configuration.md': configurationPage,
};

it.each(Object.entries(golden))(
  'golden file %s > equals the output of the code',
  async (name, text) => {
    await expect(text()).toMatchFileSnapshot(join(import.meta.dirname, 'golden', name));
  },
);

/** One line for each member of an operation or schema: short enough to list, long enough to compare. */
function json(document: object): string {
  const lines = (value: unknown, pointer: string, depth: number): string[] =>
    depth === 0 || typeof value !== 'object' || value === null
      ? [`${pointer} ${JSON.stringify(value)}\n`]
      : Object.entries(value).flatMap(([name, member]) =>
          lines(member, `${pointer}/${name.replaceAll('/', '~1')}`, depth - 1),
        );
  return lines(document, '', 4).join('');
}

function pages(texts: string[]): string {
  return texts.map((text) => `${text.trimEnd()}\n`).join(`\n${'-'.repeat(80)}\n`);
}

function hashesUnder(folder: string): string[] {
  return readdirSync(join(packageRoot, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.md'))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
    .map((path) => {
      const hash = createHash('sha256').update(readFileSync(path)).digest('hex');
      return `${hash}  ${path.slice(packageRoot.length).replace(/^\//, '')}\n`;
    });
}

/** docs/errors.md, from the problem tables of both APIs. */
function errorsPage(): string {
  const rows = (problems: Record<string, readonly [number, string]>): string =>
    Object.entries(problems)
      .sort(([a, [left]], [b, [right]]) => left - right || a.localeCompare(b))
      .map(([code, [status, title]]) => `| ${status} | \`${code}\` | ${title} |\n`)
      .join('');
  const head = '| status | code | title |\n| --- | --- | --- |\n';
  return [
    '<!-- prettier-ignore-start -->',
    '<!-- Generated: npx vitest run test/golden.test.ts -u -->',
    '# Errors',
    'Both APIs answer errors with a [problem document](../spec/answers.md#problems) (RFC 9457). Switch on `code`, which is stable; `detail` explains the case and the next step.',
    '- **408, 429, 503**, and **423** once the operator has opened the environment: send the same request again, after `Retry-After` if present. Repeating an admission never creates a second admission, but a repeated [AuthZEN](integrate.md#authzen) evaluation is another admission, and a repeated request for an API key or share token can create a second key or token.\n- **409**: the verifier or the publisher has not reached the proof yet, or the run is open; retry later. `already_decided`, `approver_retired`, `run_closed` and `run_seq_taken` are final; with `run_incomplete`, `detail` lists what the run lacks.\n- **500**: a defect or damaged data; send the operator the `request_id`.\n- **other 4xx**: change the request. A 403 `policy_denied` is a decision: it contains the signed receipt.',
    'The nginx of [Docker Compose](deploy.md#docker-compose) adds three codes: 503 `unavailable` when no server of an API answers, and in front of the public API 429 `rate_limited`, and 412 `precondition_failed` for `If-Match` and `If-Unmodified-Since`.',
    'The SDK maps these codes to [its own](integrate.md#errors).',
    `## Engine API\n\n${head}${rows(ENGINE_PROBLEMS)}`,
    `## Public API\n\n${head}${rows(PUBLIC_PROBLEMS)}\n<!-- prettier-ignore-end -->\n`,
  ].join('\n\n');
}

/** Settings that only `start` passes to its children. */
const INTERNAL = ['EMBEDDED_DATABASE'];

/** docs/configuration.md: its prose, and the table of settings generated from their definitions. */
function configurationPage(): string {
  const page = readFileSync(join(packageRoot, 'docs/configuration.md'), 'utf8');
  const [prose = ''] = page.split('\n## Settings\n');
  const settings = new Map<string, { schema: z.core.$ZodType; meaning: string; of: string[] }>();
  for (const [program, shape] of Object.entries(SETTINGS)) {
    for (const [name, schema] of Object.entries<z.ZodType>(shape)) {
      const known = settings.get(name) ?? { schema, meaning: '', of: [] };
      known.of.push(program);
      known.meaning ||= schema.description ?? '';
      settings.set(name, known);
    }
  }
  const rows = [...settings]
    .filter(([name]) => !INTERNAL.includes(name))
    .map(([name, { schema, meaning, of }]) => {
      if (meaning === '') throw new Error(`${name} has no description`);
      return `| \`${name}\` | ${meaning} | ${defaultOf(schema)} | ${of.join(', ')} |\n`;
    });
  return [
    prose,
    '## Settings\n',
    '<!-- Generated: npx vitest run test/golden.test.ts -u -->\n',
    '<!-- prettier-ignore -->',
    '| setting | meaning | default | programs |\n| --- | --- | --- | --- |',
    rows.join(''),
  ].join('\n');
}

/** A default, or an optional, nullable or transformed schema. */
type Wrapper = { innerType?: z.ZodType; in?: z.ZodType; defaultValue?: unknown };

function defaultOf(schema: z.core.$ZodType): string {
  const { defaultValue, innerType, in: input } = schema._zod.def as Wrapper;
  const isShown = ['string', 'number'].includes(typeof defaultValue) && defaultValue !== '';
  if (isShown) return `\`${String(defaultValue)}\``;
  const inner = innerType ?? input;
  return inner === undefined ? '' : defaultOf(inner);
}
