import { readFileSync } from 'node:fs';
import tseslint from 'typescript-eslint';

/** Words that readers from outside misread; test/docs checks the documents for the same words. */
const banned = JSON.parse(readFileSync(new URL('.ci/banned-words.json', import.meta.url), 'utf8'));

export default tseslint.config(
  {
    ignores: [
      'dist/',
      'sdk/dist/',
      'sdk/reference/',
      'node_modules/',
      '.data/',
      'coverage/',
      'python/',
    ],
  },
  ...tseslint.configs.recommendedTypeChecked.map((config) => ({ ...config, files: ['**/*.ts'] })),
  {
    files: ['**/*.ts'],
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['vitest.config.ts'] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/require-await': 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      '@typescript-eslint/consistent-type-imports': 'error',
      'no-warning-comments': [
        'error',
        { terms: banned['comments and pages'], location: 'anywhere' },
      ],
      'id-denylist': ['error', ...banned.identifiers],
      eqeqeq: 'error',
      'no-console': 'error',
      'no-restricted-syntax': [
        'error',
        {
          selector:
            "ImportDeclaration[source.value=/^zod/] > :matches(ImportSpecifier[imported.name='z'], ImportDefaultSpecifier)",
          message: "Write `import * as z from 'zod'`: bundlers keep all of zod for its export `z`.",
        },
      ],
      'no-restricted-properties': [
        'error',
        {
          object: 'process',
          property: 'exit',
          message: 'Only an entry point in programs/ may exit.',
        },
        {
          object: 'process',
          property: 'env',
          message: 'Only runtime/config.ts reads the environment.',
        },
      ],
    },
  },
  // Each package has one file that reads the environment: the command `svc` belongs to the package of the SDK.
  {
    files: ['runtime/config.ts', 'sdk/cli/config.ts', 'sdk/cli/svc.ts'],
    rules: { 'no-restricted-properties': 'off' },
  },
  {
    files: ['programs/**/*.ts'],
    rules: {
      'no-console': 'off',
      'no-restricted-properties': [
        'error',
        {
          object: 'process',
          property: 'env',
          message: 'Only runtime/config.ts reads the environment.',
        },
      ],
    },
  },
  {
    files: ['test/**/*.ts'],
    rules: {
      'no-restricted-properties': 'off',
      'no-console': 'off',
      '@typescript-eslint/unbound-method': 'off',
    },
  },
);
