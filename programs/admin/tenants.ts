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
  type Admin,
  type Outcome,
} from './command.js';

const ENVIRONMENTS = ['sandbox', 'live'] as const;
const MAX_PER_SECOND = 1_000_000;

export function addTenantCommands(add: AddCommand): void {
  add(
    'tenant create <tenant_id> <sandbox|live>',
    'Create a tenant, not yet allowlisted; its environment is permanent',
    'acme sandbox',
    async ({ act }, tenantId: string, name: string) => {
      if (!TENANT_ID_PATTERN.test(tenantId)) {
        throw new UsageError(
          'a tenant id has 1 to 128 of A-Z a-z 0-9 _ . : -, and starts with a letter or digit',
        );
      }
      const environment = oneOf(name, ENVIRONMENTS);
      const created = await act((tx) => createTenant(tx, { tenantId, environment }));
      return { document: { tenant_id: tenantId, environment, created } };
    },
  );
  add(
    'tenant allow <tenant_id>',
    'Add a tenant to the allowlist',
    'acme',
    (admin, tenantId: string) => changeAllowlist(admin, tenantId, true),
  );
  add(
    'tenant disallow <tenant_id>',
    'Remove a tenant from the allowlist; also applies to accepted admissions that are not yet signed',
    'acme',
    (admin, tenantId: string) => changeAllowlist(admin, tenantId, false),
  );
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
      return { document: { tenant_id: tenantId, validity } };
    },
  );
  add(
    'tenant limit <tenant_id> <per_second|none>',
    "Set the request rate limit of a tenant; none: the engines' RATE_LIMIT",
    'acme 200',
    async ({ act }, tenantId: string, limit: string) => {
      const rateLimit = limit === 'none' ? null : wholeNumber(limit, 1, MAX_PER_SECOND);
      await act((tx) => setRateLimit(tx, tenantId, rateLimit));
      return { document: { tenant_id: tenantId, rate_limit: rateLimit } };
    },
  );
  add(
    'tenant list',
    'List the tenants, with their settings and numbers of active keys',
    '',
    async ({ database }) => ({ document: (await listTenants(await database())).map(snakeCase) }),
  );
  add(
    'lane open <sandbox|live>',
    'Open an environment for admissions',
    'sandbox',
    (admin, environment: string) => changeLane(admin, environment, true),
  );
  add(
    'lane lock <sandbox|live>',
    'Lock an environment for admissions immediately; also applies to accepted admissions that are not yet signed',
    'sandbox',
    (admin, environment: string) => changeLane(admin, environment, false),
  );
  add(
    'lane list',
    'List the environments, and whether they are open',
    '',
    async ({ database }) => ({ document: (await listLanes(await database())).map(snakeCase) }),
  );
}

type Validities = [proof: string, passport: string, certificate: string, trust: string];

async function changeAllowlist(
  { act }: Admin,
  tenantId: string,
  allowlisted: boolean,
): Promise<Outcome> {
  await act((tx) => setAllowlisted(tx, tenantId, allowlisted));
  return { document: { tenant_id: tenantId, allowlisted } };
}

async function changeLane({ act }: Admin, name: string, open: boolean): Promise<Outcome> {
  const environment = oneOf(name, ENVIRONMENTS);
  await act((tx) => setLane(tx, environment, open));
  return { document: { environment, open } };
}
