import { verifyRegistration } from '#protocol/approvals';
import { attempt } from '#protocol/errors';
import { parseStrict } from '#protocol/json';
import { registrationSchema } from '#protocol/schemas/approvals';
import { safeParse } from '#protocol/schemas/messages';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { nativeCrypto } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { addApprover, listApprovers, retireApprover } from '#sql/lifecycle/approvers';
import {
  type AddCommand,
  confirmOption,
  readOperatorsFile,
  requireConfirmed,
  UsageError,
} from './command.js';

const EXAMPLE = 'd93914ab8b69ff96079b95defce68252b9a6164acff7ddc2cfc2e9e4806c34ed';

export function addApproverCommands(add: AddCommand): void {
  add(
    'approver add <tenant_id> <registration.json>',
    'Register the key of an approver, whose approvals count from the next log index on',
    'acme ops-lead.json',
    async ({ act }, tenantId: string, file: string) => {
      const text = Buffer.from(await readOperatorsFile(file));
      const parsed = safeParse(
        registrationSchema,
        attempt(() => parseStrict(text)),
      );
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        const where = issue?.path.join('.') ?? '';
        throw new OperatorError(`${file} is not a registration: ${where} ${issue?.message ?? ''}`);
      }
      const registration = parsed.data;
      if (registration.tenant_id !== tenantId) {
        throw new UsageError(
          `${file} is a registration of the tenant ${registration.tenant_id}, not of ${tenantId}`,
        );
      }
      if (!verifyRegistration(nativeCrypto, registration)) {
        throw new OperatorError(
          `${file} does not prove possession of its key: the signature does not verify`,
        );
      }
      const { leafIndex, registrationHash } = await act((tx) => addApprover(tx, registration));
      return {
        registration_hash: registrationHash,
        approver: registration.approver,
        change: 'activate',
        leaf_index: leafIndex,
      };
    },
  );
  add(
    'approver retire <registration_hash>',
    'Retire the key of an approver; earlier approvals stay valid',
    `${EXAMPLE} --confirm ${EXAMPLE}`,
    async ({ act }, hash: string, { confirm }: { confirm: string }) => {
      if (!HASH_PATTERN.test(hash))
        throw new UsageError('the registration hash must be a SHA-256 in hex');
      requireConfirmed(confirm, hash);
      const { leafIndex } = await act((tx) => retireApprover(tx, hash));
      return { registration_hash: hash, change: 'retire', leaf_index: leafIndex };
    },
  ).requiredOption(...confirmOption('registration_hash'));
  add(
    'approver list <tenant_id>',
    'List the approvers of a tenant, and whether their approvals count',
    'acme',
    async ({ database }, tenantId: string) =>
      (await listApprovers(await database(), tenantId)).map(({ registration, ...row }) => ({
        registration_hash: row.registrationHash,
        approver: registration.approver,
        state: row.state,
        created_by: row.createdBy,
      })),
  );
}
