import { canonicalBytes } from '#protocol/json';
import { isPackageId, PACKAGE_ID_PATTERN } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  packageListSchema,
  packageRequestSchema,
  packageSchema,
} from '#protocol/schemas/lifecycle';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  createPackage,
  listPackages,
  readPackage,
  type MemberFault,
  type TrustPackage,
} from '#sql/lifecycle/packages';
import { sendJson, sendRevalidatable } from '../http/respond.js';
import { newUuidHex } from '#sql/db/columns';
import { listOperation } from '../http/paging.js';
import { Problem } from '../http/problem.js';
import { revalidated } from '../../openapi/types.js';
import { json } from '../operation.js';
import { documentOperation, tenantOperation } from '../http/request.js';

function membersOf({ packageId, proofIds, createdAt }: TrustPackage) {
  return { package_id: packageId, proof_ids: proofIds, created_at: formatTime(createdAt) };
}

export const createPackageOperation = documentOperation(
  {
    id: 'createPackage',
    method: 'post',
    path: '/v1/packages',
    tag: 'Lifecycle',
    summary: 'Create a trust package',
    description:
      'A package groups proofs of admissions and never changes. The same proofs in the same order ' +
      'are the same package: sending the same body again returns the first package.',
    scopes: ['lifecycle'],
    body: {
      schema: packageRequestSchema,
      examples: {
        two: {
          schema_version: SCHEMA.packageRequest,
          proof_ids: ['019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', '019aa2c1e0d87a51b1c20f9d8e7b6a53'],
        },
      },
    },
    responses: {
      200: json('Existing package with the same proofs.', packageSchema, {
        'Idempotent-Replayed': '`true`: the package existed already.',
      }),
      201: json('The new package.', packageSchema, { Location: 'Path of the package.' }),
    },
    problems: ['package_member_unfit'],
  },
  async ({ caller, inTenant, res }, document) => {
    const created = await inTenant(createPackage, {
      packageId: `pkg_${newUuidHex()}`,
      keyNo: caller.keyNo,
      proofIds: document.proof_ids,
      membersHash: nativeSha256(canonicalBytes(document.proof_ids)),
    });
    if (created.outcome === 'unfit') throw unfit(created.faults);
    const { package: made } = created;
    const isNew = created.outcome === 'created';
    if (isNew) res.setHeader('Location', `/v1/packages/${made.packageId}`);
    else res.setHeader('Idempotent-Replayed', 'true');
    sendJson(res, isNew ? 201 : 200, { schema_version: SCHEMA.package, ...membersOf(made) });
  },
);

const FAULTS: Record<MemberFault, string> = {
  unknown: 'is not the id of a proof of this tenant',
  denied: 'is a denial or a required approval, not an admission',
  outcome: 'is an outcome or the close of a run, not the admission of an action',
  erased: 'has been erased',
};

/** A proof of another tenant gets the same response as a proof that does not exist. */
function unfit(faults: Map<number, MemberFault>): Problem {
  return new Problem('package_member_unfit', {
    errors: [...faults].map(([place, fault]) => ({
      pointer: `/proof_ids/${String(place)}`,
      detail: FAULTS[fault],
    })),
  });
}

export const listPackagesOperation = listOperation(
  {
    id: 'listPackages',
    path: '/v1/packages',
    tag: 'Lifecycle',
    summary: 'List trust packages',
    description: 'Lists packages, newest first.',
    scopes: ['read', 'lifecycle'],
    page: json('A page of packages.', packageListSchema),
  },
  {
    name: 'packages',
    version: SCHEMA.packageList,
    documentOf: membersOf,
    id: PACKAGE_ID_PATTERN,
    placeOf: ({ createdAt, packageId }) => ({ createdAt, id: packageId }),
    read: listPackages,
  },
);

export const readPackageOperation = tenantOperation(
  {
    id: 'readPackage',
    method: 'get',
    path: '/v1/packages/{package_id}',
    tag: 'Lifecycle',
    summary: 'Retrieve a trust package',
    scopes: ['read', 'lifecycle'],
    responses: revalidated(json('The package, which never changes.', packageSchema)),
    problems: ['package_not_found'],
  },
  async ({ inTenant, req, res }) => {
    const packageId = String(req.params['package_id']);
    const found = isPackageId(packageId) ? await inTenant(readPackage, packageId) : null;
    if (found === null) throw new Problem('package_not_found');
    const document = { schema_version: SCHEMA.package, ...membersOf(found) };
    sendRevalidatable(req, res, 'application/json', canonicalBytes(document));
  },
);
