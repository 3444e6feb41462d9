import { TENANT_ID_PATTERN } from '#protocol/schemas/primitives';
import {
  createTenant,
  listLanes,
  listTenants,
  setAllowlisted,
  setLane,
  setRateLimit,
  setValidity,
} from '#sql/tenants/administration';
import {
  oneOf,
  secondsOrNone,
  snakeCase,
  UsageError,
  wholeNumber,
  type AddCommand,
} from './command.js';

const ENVIRONMENTS = ['sandbox', 'live'] as const;
const MAX_PER_SECOND = 1_000_000;
const MAX_APPROVAL_SECONDS = 7 * 24 * 60 * 60;
const APPLIES_TO_ACCEPTED = 'also applies to accepted admissions that are not yet signed';

type Validities = [proof: string, passport: string, certificate: string, trust: string];

export function addTenantCommands(add: AddCommand): void {
  add(
    'tenant create <tenant_id> <sandbox|live>',
    'Create a tenant, not yet allowlisted; its environment is permanent',
    'acme sandbox',
    async ({ act }, tenantId: string, name: string) => {
      if (!TENANT_ID_PATTERN.test(tenantId)) {
        throw new UsageError(
          'a tenant id must have 1 to 128 of A-Z a-z 0-9 _ . : -, and start with a letter or digit',
        );
      }
      const environment = oneOf(name, ENVIRONMENTS);
      const created = await act((tx) => createTenant(tx, { tenantId, environment }));
      return { tenant_id: tenantId, environment, created };
    },
  );
  for (const [verb, help, allowlisted] of [
    ['allow', 'Add a tenant to the allowlist', true],
    ['disallow', `Remove a tenant from the allowlist; ${APPLIES_TO_ACCEPTED}`, false],
  ] as const) {
    add(`tenant ${verb} <tenant_id>`, help, 'acme', async ({ act }, tenantId: string) => {
      await act((tx) => setAllowlisted(tx, tenantId, allowlisted));
      return { tenant_id: tenantId, allowlisted };
    });
  }
  add(
    'tenant validity <tenant_id> <proof> <passport> <certificate> <trust>',
    'Set how long artifacts of new admissions are valid, in seconds or none',
    'acme none none 31536000 7776000',
    async ({ act }, tenantId: string, ...[proof, passport, certificate, trust]: Validities) => {
      const validity = {
        proof: secondsOrNone(proof),
        passport: secondsOrNone(passport),
        certificate: secondsOrNone(certificate),
        trust: secondsOrNone(trust),
      };
      await act((tx) => setValidity(tx, tenantId, validity));
      return { tenant_id: tenantId, validity };
    },
  );
  add(
    'tenant approval <tenant_id> <seconds>',
    'Set for how many seconds a new admission that requires an approval can be approved; 900 by default',
    'acme 3600',
    async ({ act }, tenantId: string, text: string) => {
      const seconds = wholeNumber(text, 1, MAX_APPROVAL_SECONDS);
      await act((tx) => setValidity(tx, tenantId, { approval: seconds }));
      return { tenant_id: tenantId, approval_seconds: seconds };
    },
  );
  add(
    'tenant limit <tenant_id> <per_second|none>',
    "Set the request rate limit of a tenant; none restores the engines' RATE_LIMIT",
    'acme 200',
    async ({ act }, tenantId: string, limit: string) => {
      const rateLimit = limit === 'none' ? null : wholeNumber(limit, 1, MAX_PER_SECOND);
      await act((tx) => setRateLimit(tx, tenantId, rateLimit));
      return { tenant_id: tenantId, rate_limit: rateLimit };
    },
  );
  add(
    'tenant list',
    'List the tenants, with their settings and numbers of active keys',
    '',
    async ({ database }) => (await listTenants(await database())).map(snakeCase),
  );
  for (const [verb, help, open] of [
    ['open', 'Open an environment for admissions', true],
    ['lock', `Pause the admissions of an environment immediately; ${APPLIES_TO_ACCEPTED}`, false],
  ] as const) {
    add(`lane ${verb} <sandbox|live>`, help, 'sandbox', async ({ act }, name: string) => {
      const environment = oneOf(name, ENVIRONMENTS);
      await act((tx) => setLane(tx, environment, open));
      return { environment, open };
    });
  }
  add('lane list', 'List the environments, and whether they are open', '', async ({ database }) =>
    (await listLanes(await database())).map(snakeCase),
  );
}
