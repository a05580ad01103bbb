"""What differs between models?"""
